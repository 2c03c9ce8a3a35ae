"""sandlock, through its Python package: Landlock, seccomp, and a supervisor that answers some system calls."""

from __future__ import annotations

import os
from typing import ClassVar

import sandlock
from sandlock.sandbox import StdioMode

from benchmarks.jail.sandbox import DoesNotRunHereError, Sandbox
from benchmarks.jail.sandboxes.piped import ENVIRONMENT, PYTHON, ask
from cenote_security.walls.interpreter import running
from cenote_security.walls.root import SYSTEM_PATHS


class Sandlock(Sandbox):
    """Files and its default list of system calls. Limits are off, since its supervisor would answer more calls."""

    bare: ClassVar[str] = "no sandbox"
    rounds_apart: ClassVar[int] = 6

    def __init__(self, scratch: str) -> None:
        super().__init__(scratch)
        shown = [*filter(os.path.exists, (*SYSTEM_PATHS, *running().visible)), "/etc", "/proc", "/dev"]
        sandbox = sandlock.Sandbox(
            fs_readable=shown, fs_writable=[scratch], clean_env=True, env=ENVIRONMENT, cwd="/"
        )
        try:
            self._process = sandbox.popen(list(PYTHON), stdin=StdioMode.PIPED, stdout=StdioMode.PIPED)
        except RuntimeError as error:
            raise DoesNotRunHereError(str(error)) from error

    def execute(self, code: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            return ask(self._process.stdin, self._process.stdout, code)
        except (EOFError, BrokenPipeError):
            raise DoesNotRunHereError("its Python ended") from None

    def close(self) -> None:
        self._process.__exit__(None, None, None)
