"""What a process has only one of, and each author shall find as they left it: directory, environment, import path."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

# A cell may assign to attributes of `os`, and to methods of the class that `os.environ` is of.
_getcwd, _chdir, _putenv, _unsetenv = os.getcwd, os.chdir, os.putenv, os.unsetenv
_variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_sys = sys


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """One author's.

    directory: None when it was deleted while it was the current one. environ: what `os.environ` is, which a cell may
    have replaced. variables: what it is by nature, and child processes get.
    """

    directory: str | None
    environ: object
    variables: dict[bytes, bytes]
    path: list[str]

    @classmethod
    def here(cls) -> Surroundings:
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
