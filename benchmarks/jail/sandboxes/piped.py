"""Sandboxes that wrap a command: a Python inside them, driven through its pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar

from benchmarks.jail import far_end
from benchmarks.jail.sandbox import CellFailedError, DoesNotRunHereError, Sandbox
from benchmarks.runtime.process_tree import live_descendants

ENDING_GRACE = 5.0
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Settings that a Cenote jail has too: one BLAS thread for one CPU."""

PYTHON = (sys.executable, "-I", "-c", Path(far_end.__file__).read_text())


def ask(requests: IO[bytes], answers: IO[bytes], code: str) -> str:
    """Sends one cell and returns its output. Raises CellFailedError; EOFError when the process has ended."""
    requests.write(json.dumps(code).encode() + b"\n")
    requests.flush()
    line = answers.readline()
    if not line:
        raise EOFError
    printed, error = json.loads(line)
    if error:
        raise CellFailedError(error)
    return str(printed)


class Piped(Sandbox):
    """A command that runs Python; subclasses define it."""

    bare: ClassVar[str] = "no sandbox"

    def __init__(self, scratch: str) -> None:
        super().__init__(scratch)
        try:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                cwd="/",
            )
        except FileNotFoundError as error:
            raise DoesNotRunHereError(f"{error.filename} is not installed") from error

    def command(self) -> list[str]:
        """The command line to start. Unwrapped: no sandbox at all."""
        return list(PYTHON)

    def execute(self, code: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            return ask(self._process.stdin, self._process.stdout, code)
        except (EOFError, BrokenPipeError):
            raise DoesNotRunHereError(self._process.stderr.read().decode(errors="replace").strip()) from None

    def close(self) -> None:
        """The script exits when its pipe is closed; a process that stays is killed."""
        inner = live_descendants(self._process.pid) - {self._process.pid}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with self._process:
            try:
                self._process.wait(ENDING_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
        # Children that their parent did not wait for belong to this process, if it adopts orphans.
        for pid in inner:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


class NoSandbox(Piped):
    """The same Python with the same pipes and no sandbox."""
