"""What the kernel needs of the process, put back where a cell has changed it."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable

from cenote_worker.in_jail.interrupts import Interrupts
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.streams import CellStream

__builtins__ = BUILTINS

_gettrace, _settrace = sys.gettrace, sys.settrace
_getprofile, _setprofile = sys.getprofile, sys.setprofile
_get_limit, _set_limit = sys.getrecursionlimit, sys.setrecursionlimit
_sys = sys

_OURS = r"cenote_worker\."
re.compile(_OURS)  # into the module's cache: compiling it in each worker would touch 300 kB of shared pages


class ProcessState:
    """The streams, hooks and limits that hold between cells.

    What a user may want to keep stays: the working directory, the environment, builtins, a recursion limit above
    the original one. Anything that would blind or break the kernel is put back.
    """

    def __init__(self, stdout: CellStream, stderr: CellStream, interrupts: Interrupts) -> None:
        self._streams = stdout, stderr
        self._interrupts = interrupts
        self._excepthook = sys.excepthook
        self._recursion_limit = _get_limit()
        self._trace: Callable[..., object] | None = None
        self._profile: Callable[..., object] | None = None
        # What a dropped value warns of while the kernel runs (a coroutine that was never awaited) is placed in
        # the kernel's code, which is nobody's business.
        warnings.filterwarnings("ignore", module=_OURS)

    def begin_cell(self) -> None:
        self._trace, self._profile = _gettrace(), _getprofile()
        _sys.stdout, _sys.stderr = self._streams  # a thread may have replaced them since the last cell

    def restore(self) -> list[str]:
        """Puts everything back. Returns what of it the user should know."""
        if _gettrace() is not self._trace:
            _settrace(self._trace)  # type: ignore[arg-type]
        if _getprofile() is not self._profile:
            _setprofile(self._profile)
        if _get_limit() < self._recursion_limit:
            _set_limit(self._recursion_limit)
        if _sys.excepthook is not self._excepthook:
            _sys.excepthook = self._excepthook
        self._interrupts.install()
        return self._restore_streams()

    def _restore_streams(self) -> list[str]:
        stdout, stderr = self._streams
        replaced = []
        if getattr(_sys, "stdout", None) is not stdout:
            _sys.stdout = stdout
            replaced.append("sys.stdout")
        if getattr(_sys, "stderr", None) is not stderr:
            _sys.stderr = stderr
            replaced.append("sys.stderr")
        return replaced
