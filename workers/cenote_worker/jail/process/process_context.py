"""What a process has only one of: directory, environment, import path, streams, hooks, and what loggers remember.

Each author finds directory, environment and import path as they left them. The streams and hooks that the kernel
needs are put back where a cell has changed them.

A logger that was asked before goes on letting through what it did when its `level` is set as an attribute, past
`setLevel`. A cell would then depend on whether any cell before it has logged, which no name says, and a logger would
be a different one for each level that it is first used with. So each cell begins without what loggers remember.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cenote_worker.jail.output.streams import CellStream
from cenote_worker.jail.process.cell_boundary import InterruptHandler
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

# A cell may assign to attributes of `os`, and to methods of the class that `os.environ` is of.
_getcwd, _chdir, _putenv, _unsetenv = os.getcwd, os.chdir, os.putenv, os.unsetenv
_variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_sys = sys


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """One author's.

    directory: None when it was deleted while it was the current one. environ: what `os.environ` is, which a cell may
    have replaced. variables: what it is by nature, and child processes get.
    """

    directory: str | None
    environ: object
    variables: dict[bytes, bytes]
    path: list[str]

    @classmethod
    def here(cls) -> ProcessContext:
        """Those of the process, now. Raises whatever a cell has brought about that made `os` or `sys` unusable."""
        return cls(
            directory=_current_directory(),
            environ=os.environ,
            variables=_variables.copy(),
            path=list(_sys.path),
        )

    def restore(self, home: str) -> str:
        """Makes them the process's. Gives a note for the author when `home` must stand in for a lost directory."""
        _sys.path = self.path.copy()  # a new list: what a cell has put there may be no list
        self._restore_variables()
        os.environ = self.environ  # type: ignore[assignment]  # noqa: B003
        return self._restore_directory(home)

    def _restore_variables(self) -> None:
        for name in _variables.keys() - self.variables.keys():
            del _variables[name]
            with suppress(Exception):
                _unsetenv(name)
        for name, value in self.variables.items():
            if _variables.get(name) != value:
                _variables[name] = value
                # It may hold what the system does not take: `environ` is a dictionary, to who knows where to look.
                with suppress(Exception):
                    _putenv(name, value)

    def _restore_directory(self, home: str) -> str:
        try:
            if self.directory is not None:
                _chdir(self.directory)
                return ""
        except OSError:
            pass
        _chdir(home)
        return f"the working directory {self.directory or ''} is gone; this is {home}"


def _current_directory() -> str | None:
    try:
        return _getcwd()
    except OSError:
        return None


_OURS = r"cenote_worker\."
re.compile(_OURS)  # into the module's cache: compiling it in each worker would touch 300 kB of shared pages


class ProcessState:
    """The streams and hooks that hold between cells. What acts by itself there, `BetweenCells` holds back.

    What a user may want to keep stays: the working directory, the environment, builtins. Anything that would blind or
    break the kernel is put back.
    """

    def __init__(self, stdout: CellStream, stderr: CellStream, interrupts: InterruptHandler) -> None:
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


_root = logging.getLogger()
_others: dict[str, Any] = logging.Logger.manager.loggerDict
_dict_of = object.__getattribute__


def forget_levels() -> None:
    """Of all loggers that can be had by a name. Never raises."""
    for logger in (_root, *dict.values(_others)):
        with suppress(AttributeError):  # somebody has put something else there
            remembered = _dict_of(logger, "__dict__").get("_cache")
            if type(remembered) is dict and remembered:
                remembered.clear()
