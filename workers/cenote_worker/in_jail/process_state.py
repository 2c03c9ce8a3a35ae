"""What the kernel needs of the process, put back where a cell has changed it."""

from __future__ import annotations

import re
import sys
import warnings

from cenote_worker.in_jail.interrupts import Interrupts
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.streams import CellStream

__builtins__ = BUILTINS

_sys = sys

_OURS = r"cenote_worker\."
re.compile(_OURS)  # into the module's cache: compiling it in each worker would touch 300 kB of shared pages


class ProcessState:
    """The streams and hooks that hold between cells. What acts by itself there, `BetweenCells` holds back.

    What a user may want to keep stays: the working directory, the environment, builtins. Anything that would blind or
    break the kernel is put back.
    """

    def __init__(self, stdout: CellStream, stderr: CellStream, interrupts: Interrupts) -> None:
        self._streams = stdout, stderr
        self._interrupts = interrupts
        self._excepthook = sys.excepthook
        # What a dropped value warns of while the kernel runs (a coroutine that was never awaited) is placed in
        # the kernel's code, which is nobody's business.
        warnings.filterwarnings("ignore", module=_OURS)

    def begin_cell(self) -> None:
        _sys.stdout, _sys.stderr = self._streams  # a thread may have replaced them since the last cell

    def restore(self) -> list[str]:
        """Puts everything back. Returns what of it the user should know."""
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
