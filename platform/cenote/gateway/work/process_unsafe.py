"""Starts a process that works on a team or a job. It ends with its parent."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

NEEDED: Final = ("PATH", "TMPDIR", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that Python itself reads, and the language. The platform's other variables are not for tenants."""

NO_HOME: Final = "/nonexistent"
"""Home folder in which providers' libraries do not find the identity of the user who runs the platform."""

_KINDS: Final = ("PYTHON", "LC_")

END_PATIENCE: Final = 5.0
"""Seconds for a killed process to end."""


class OrchestratorProcess:
    """Its standard input is open while this process lives and wants it to work."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._handle = os.pidfd_open(process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, patience: float) -> bool:
        """Returns whether it has ended, after at most `patience` seconds."""
        if self._process.returncode is None and not select.select((self._handle,), (), (), patience)[0]:
            return False
        self._process.wait()
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
            os.close(self._handle)
        return True

    def give(self, settings: str) -> None:
        """Gives work to a process that was started without one. Raises OSError where it has died."""
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), settings.encode() + b"\n")  # less than a pipe holds

    def make_room(self) -> None:
        """Asks it to interrupt what is under way, begin nothing more, and end."""
        with suppress(OSError):  # it has ended just now
            assert self._process.stdin is not None
            os.write(self._process.stdin.fileno(), b"\n")

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.kill()
        self.wait(END_PATIENCE)


def environment(allowed: Collection[str]) -> dict[str, str]:
    """The part of this process's environment that is passed on."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in NEEDED or name in allowed or name.startswith(_KINDS)
    }
    return {"HOME": NO_HOME} | kept


def spawn(settings: str, log: Path, allowed: Collection[str]) -> OrchestratorProcess:
    """settings: without a work for a process that imports what it will need, and waits for `give`.

    log: where its output goes. allowed: further names of variables.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cenote.gateway.work.process", settings],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment(allowed),
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(output)
    return OrchestratorProcess(process)
