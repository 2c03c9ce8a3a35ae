"""Starts a process that works on a team or a job. It ends with the one that started it."""

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
"""And what Python itself looks at, and the language. Nothing else of the platform's environment is for tenants."""

NO_HOME: Final = "/nonexistent"
"""Where libraries of providers look for the identity of whoever runs the platform."""

_KINDS: Final = ("PYTHON", "LC_")


class OrchestratorProcess:
    """Its standard input is open for as long as this process lives and wants it to work."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._handle = os.pidfd_open(process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, patience: float) -> bool:
        """Whether it has ended, after so many seconds at the most."""
        if self._process.returncode is None and not select.select((self._handle,), (), (), patience)[0]:
            return False
        self._process.wait()
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
            os.close(self._handle)
        return True

    def make_room(self) -> None:
        """Asks it to end what is under way, begin nothing more, and end."""
        with suppress(OSError):  # it has ended just now
            assert self._process.stdin is not None
            os.write(self._process.stdin.fileno(), b"\n")

    def kill(self) -> None:
        self._process.kill()


def environment(allowed: Collection[str]) -> dict[str, str]:
    """What of this process's environment is handed on."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in NEEDED or name in allowed or name.startswith(_KINDS)
    }
    return {"HOME": NO_HOME} | kept


def spawn(settings: str, log: Path, allowed: Collection[str]) -> OrchestratorProcess:
    """log: where its output goes. allowed: further names of the environment."""
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
