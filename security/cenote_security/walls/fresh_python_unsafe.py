"""Running one function in a fresh interpreter: no threads, no environment, nothing of the caller's state."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Final

from cenote_security.walls.interpreter import Interpreter

# -I: no PYTHON* variables, no user's folder or current directory on the path. The path comes as an argument instead.
_BOOTSTRAP: Final = (
    "import sys, json, importlib; sys.path[:] = json.loads(sys.argv[1]);"
    "getattr(importlib.import_module(sys.argv[2]), sys.argv[3])(*sys.argv[4:])"
)


def arguments_of(search: Sequence[str], module: str, function: str, *arguments: str) -> list[str]:
    """What an interpreter is started with to run `module.function(*arguments)`. search: its `sys.path`."""
    return ["-I", "-c", _BOOTSTRAP, json.dumps(search), module, function, *arguments]


def _start_of(interpreter: Interpreter, module: str, function: str, *arguments: str) -> list[str]:
    if not interpreter.prefix:
        return arguments_of(interpreter.search, module, function, *arguments)
    # -S: no `.pth` file, no sitecustomize. These would run code of packages before any wall is up.
    return ["-S", *arguments_of(interpreter.outside, module, function, *arguments)]


class FreshPython:
    """A child process that runs `module.function(*arguments)`, all strings, and nothing of this one's.

    descriptors: passed on under their own numbers. Standard output is for `output`; the other standard streams are
    /dev/null. The owner calls `wait`, or `kill`, or `disown` in the end.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        module: str,
        function: str,
        *arguments: str,
        descriptors: tuple[int, ...] = (),
        capture: bool = False,
    ) -> None:
        self._process = subprocess.Popen(
            [interpreter.executable, *_start_of(interpreter, module, function, *arguments)],
            env={},
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """Its status, or None when it is still running then."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def output(self, seconds: float) -> bytes | None:
        """Everything it printed, or None when it had not ended by then and was killed. Needs `capture`."""
        try:
            return self._process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def disown(self) -> None:
        """In a fork of the process that started it: not our child, nothing to wait for."""
        self._process.returncode = 0
