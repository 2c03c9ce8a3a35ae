"""State that a process has once: directory, environment, import path, streams, hooks, the level caches of loggers,
and the warnings that have been shown.

Each author finds the directory, environment and import path as they left them. The streams and hooks that the kernel
needs are restored if a cell has changed them.

A logger caches which levels are enabled. The cache stays when a cell sets `level` as an attribute instead of calling
`setLevel`. A cell would then depend on whether any earlier cell has logged, which no name shows, and a logger would
differ for each level that it was first used with. So each cell begins with empty caches.

Likewise Python shows a warning once for each line that gives it, by default. Whether a cell's warning appears would
depend on whether an earlier cell had one from the same line of a library. So each cell begins as if none had been
shown.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from cenote_worker.jail.output.streams import CellStream
from cenote_worker.jail.process.cell_boundary import InterruptHandler
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

# A cell may assign to attributes of `os`, and to methods of the class that `os.environ` is of.
_getcwd, _chdir, _putenv, _unsetenv = os.getcwd, os.chdir, os.putenv, os.unsetenv
_variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_sys = sys
_own_streams = sys.__stdout__, sys.__stderr__


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """One author's state.

    directory: None if it was deleted while it was the current one. environ: the object `os.environ`, which a cell may
    have replaced. variables: the real environment variables, which child processes get.
    """

    directory: str | None
    environ: object
    variables: dict[bytes, bytes]
    path: list[str]

    @classmethod
    def here(cls) -> ProcessContext:
        """The current state of the process. Raises any error that a cell has caused by breaking `os` or `sys`."""
        return cls(
            directory=_current_directory(),
            environ=os.environ,
            variables=_variables.copy(),
            path=list(_sys.path),
        )

    def restore(self, home: str) -> str:
        """Applies this state to the process. Returns a note for the author when `home` must replace a lost
        directory."""
        _sys.path = self.path.copy()  # a new list: a cell may have put something else there
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
                # A value may be one that the system rejects: code can reach the dictionary in `environ`.
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
    """The streams and hooks that hold between cells. `BetweenCells` holds back signals and other code that runs by
    itself.

    State that a user may want to keep stays: the working directory, the environment, builtins. Anything that would
    blind or break the kernel is restored.
    """

    def __init__(self, stdout: CellStream, stderr: CellStream, interrupts: InterruptHandler) -> None:
        self._streams = stdout, stderr
        self._interrupts = interrupts
        self._excepthook = sys.excepthook
        # Warnings about a value dropped while the kernel runs (a coroutine that was never awaited) are attributed to
        # the kernel's code, which doesn't concern the user.
        warnings.filterwarnings("ignore", module=_OURS)

    def begin_cell(self) -> None:
        _sys.stdout, _sys.stderr = self._streams  # a thread may have replaced them since the last cell

    def restore(self) -> list[str]:
        """Restores everything. Returns the restored names that the user should know of."""
        if _sys.excepthook is not self._excepthook:
            _sys.excepthook = self._excepthook
        self._interrupts.install()
        for stream in _own_streams:
            with suppress(AttributeError, OSError, ValueError):  # it is not there, or a cell has closed it
                stream.flush()  # type: ignore[union-attr]
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
_shown_once: dict[object, object] = warnings.onceregistry  # type: ignore[attr-defined]


def forget_levels() -> None:
    """Clears the caches of all named loggers. Never raises."""
    for logger in (_root, *dict.values(_others)):
        with suppress(AttributeError):  # a cell has put another object there
            remembered = _dict_of(logger, "__dict__").get("_cache")
            if type(remembered) is dict and remembered:
                remembered.clear()


class ShownWarnings:
    """Forgets, after each cell, which warnings have been shown.

    Python records them in each module that has given one (`__warningregistry__`), and in `warnings.onceregistry`. A
    search through all modules would cost more than many a cell, so the function that shows a warning is wrapped: only
    after it was called there is something to forget.
    """

    def __init__(self) -> None:
        self._some = False
        show = warnings._showwarnmsg  # type: ignore[attr-defined]

        def showing(message: object) -> None:
            self._some = True
            show(message)

        warnings._showwarnmsg = showing  # type: ignore[attr-defined]

    def forget(self) -> None:
        """Never raises."""
        if not self._some:
            return
        self._some = False
        _shown_once.clear()
        for module in list(dict.values(_sys.modules)):
            if isinstance(module, ModuleType):  # without its own `__getattribute__`, which may import
                dict.pop(ModuleType.__getattribute__(module, "__dict__"), "__warningregistry__", None)
