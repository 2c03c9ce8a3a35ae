"""A fork of a process that has other threads of Python: in the child the interpreter's lock is a new one.

A thread that waits for the lock asks its holder to hand it over. A child that was forked meanwhile would hand it over
to a thread that it does not have, and wait for ever. `os.fork` renews the lock, and runs the hooks of
`os.register_at_fork`, which are a user's, and may do anything.
"""

from __future__ import annotations

import ctypes
import gc
import os
from itertools import chain, islice, tee
from operator import call, not_
from typing import Final

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_python = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock during the call
_fork = _python.fork
_before, _in_child, _in_parent = (
    _python.PyOS_BeforeFork,
    _python.PyOS_AfterFork_Child,
    _python.PyOS_AfterFork_Parent,
)
_before.restype = _in_child.restype = _in_parent.restype = None


def _hooks(kind: str) -> list[object]:
    """The interpreter's own list of them. Its only other name is in C. kind: keyword of `os.register_at_fork`."""

    def mark() -> None:
        """Known by nothing else."""

    os.register_at_fork(**{kind: mark})
    (hooks,) = (each for each in gc.get_referrers(mark) if type(each) is list)
    hooks.remove(mark)
    return hooks


_HOOKS: Final = tuple(map(_hooks, ("before", "after_in_child", "after_in_parent")))


def fork_from_threads() -> int:
    """The C library's fork; 0 in the child, which has this thread alone. No hook runs. Raises OSError.

    In the child, what the interpreter knows of the other threads is gone.
    """
    kept = [list(hooks) for hooks in _HOOKS]
    try:
        for hooks in _HOOKS:
            hooks.clear()
        # The iterators are C and call C. Between the first call and the last no bytecode runs: with any the
        # interpreter may hand its lock over.
        forked = islice(map(call, (_before, _fork)), 1, None)
        of_child, of_parent, last = tee(forked, 3)
        list(chain(map(_in_child, filter(not_, of_child)), map(_in_parent, filter(None, of_parent))))
    finally:
        for hooks, former in zip(_HOOKS, kept, strict=True):
            hooks[:] = former
    pid: int = next(last)
    if pid < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid
