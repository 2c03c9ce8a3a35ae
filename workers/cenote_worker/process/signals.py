"""Signals that a user's program gets between two cells: they wait for the next cell, and its handlers run there.

A handler may raise, never return or end the process, and none of that may happen in the kernel's code. The main
thread blocks them. A signal to the process goes to any thread that does not block it, but Python calls the handler in
the main thread: where there are other threads, the handlers are replaced as well.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Final

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.process.pristine import BUILTINS
from cenote_worker.process.threads import thread_count

__builtins__ = BUILTINS

# The C functions: those of `signal` are Python code that a cell's changes to the builtins can break.
_get_handler, _set_handler, _set_mask = _signal.getsignal, _signal.signal, _signal.pthread_sigmask
_interrupt_calls = _signal.siginterrupt
_pending, _take = _signal.sigpending, _signal.sigtimedwait
_BLOCK, _UNBLOCK, _EXACTLY = _signal.SIG_BLOCK, _signal.SIG_UNBLOCK, _signal.SIG_SETMASK
_DEFAULT: Final = 0

_INTERRUPT: Final = frozenset((_signal.SIGINT,))
"""How a client stops a cell."""

_FAULTS: Final = frozenset(
    getattr(_signal, name)
    for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS")
)
"""The thread causes them itself: if they are blocked, the kernel ends the process."""

_LIMITS: Final = frozenset((_signal.SIGXCPU, _signal.SIGXFSZ, _signal.SIGKILL, _signal.SIGSTOP))
"""Signals of the policy's limits, and those that cannot be blocked."""

DEFERRED: Final = frozenset(_signal.valid_signals()) - _INTERRUPT - _FAULTS - _LIMITS

_FATAL: Final = DEFERRED - {_signal.SIGCHLD, _signal.SIGCONT, _signal.SIGURG, _signal.SIGWINCH}
"""Without a handler they end the process, or stop it."""

Handler = Callable[[int, FrameType | None], object]
Late = Callable[[str, BaseException | None], None]
"""Called with the outcome of a signal: its name, and what its handler raised; None if it had no handler."""


class Deferred:
    """Replaces a user's handler between two cells. heard: where it records that it was called."""

    __slots__ = ("_heard", "handler")

    def __init__(self, handler: Handler, heard: dict[int, Handler]) -> None:
        self.handler = handler
        self._heard = heard

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self._heard[number] = self.handler


def handlers_of(numbers: Iterable[int]) -> list[object]:
    """Functions of the user's program that handle any of these signals, also between two cells."""
    found = filter(callable, map(_get_handler, numbers))
    return [each.handler if type(each) is Deferred else each for each in found]


class DeferredSignals:
    """The deferred signals of one process. Cells run while it is open."""

    def __init__(self) -> None:
        self._mask: Collection[int] | None = None
        """The user's signal mask, while it is closed."""
        self._heard: dict[int, Handler] = {}
        self._exchanged: set[int] = set()

    def close(self) -> None:
        """A handler of a pending signal may raise out of this; then call it again."""
        if self._mask is None:
            self._mask = _set_mask(_BLOCK, ())
        _set_mask(_BLOCK, DEFERRED)
        if not _INTERRUPT.isdisjoint(self._mask):
            self._mask = frozenset(self._mask) - _INTERRUPT
            _set_mask(_UNBLOCK, _INTERRUPT)
        if thread_count() != 1:
            self._exchange()

    def open(self, late: Late) -> None:
        """Runs the handlers of pending signals. Raises KeyboardInterrupt when the cell is interrupted meanwhile."""
        if self._mask is None:
            return
        heard, self._heard = self._heard, {}
        self._put_back()
        for number in _pending() & DEFERRED:
            self._meet(number, late)
        for number, handler in heard.items():
            _run(number, partial(handler, number, None), late)
        mask, self._mask = self._mask, None
        _set_mask(_EXACTLY, mask)

    def _meet(self, number: int, late: Late) -> None:
        """Lets one pending signal through. The others wait while Python runs its handler, at the end of the call."""
        if number in _FATAL and _is_default(_get_handler(number)):
            if _take((number,), 0) is not None:
                late(_name(number), None)
            return
        _run(number, lambda: _set_mask(_UNBLOCK, (number,)), late)

    def _exchange(self) -> None:
        for number in DEFERRED:
            handler = _get_handler(number)
            if callable(handler) and type(handler) is not Deferred:
                self._exchanged.add(number)
                _replace(number, Deferred(handler, self._heard))

    def _put_back(self) -> None:
        while self._exchanged:
            number = self._exchanged.pop()
            handler = _get_handler(number)
            if type(handler) is Deferred:
                _replace(number, handler.handler)


def _replace(number: int, handler: Handler) -> None:
    """Setting a handler makes the signal interrupt system calls: what `siginterrupt` has set is put back."""
    restarts = libc.restarts_calls(number)
    _set_handler(number, handler)
    if restarts:
        _interrupt_calls(number, False)


def _run(number: int, handler: Callable[[], object], late: Late) -> None:
    """Raises KeyboardInterrupt. What the handler raises is reported when no further handler can be called."""
    raised: BaseException | None = None
    try:
        handler()
        _set_mask(_BLOCK, (number,))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (it is shown)
        raised = error
    if raised is not None:
        with suppress(Exception):  # of the next one, by now
            _set_mask(_BLOCK, (number,))
        late(_name(number), raised)


def _name(number: int) -> str:
    return _NAMES.get(number, f"signal {number}")


def _is_default(handler: object) -> bool:
    """Not by `==`, which may be a user's."""
    return isinstance(handler, int) and int(handler) == _DEFAULT


_NAMES: Final[dict[int, str]] = {
    number: name
    for name, number in vars(_signal).items()
    if re.fullmatch("SIG[A-Z0-9]+", name) and not name.startswith("SIGRT")
}
