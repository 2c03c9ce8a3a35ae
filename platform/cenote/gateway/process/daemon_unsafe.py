"""Starts the processes of a platform, detached from their starter: own session, own log, no terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cenote_worker.wire.channels import ENVIRONMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A started process. pipe: carries its announcement that it is ready, or why it is not."""

    process: subprocess.Popen[bytes]
    pipe: int


@contextmanager
def spawn(module: str, options: str, log: Path) -> Iterator[Daemon]:
    """module: what it runs. options: of the platform, serialised. log: for its output, readable by its owner only."""
    reading, writing = os.pipe()
    try:
        try:
            process = _process(module, options, log, writing)
        finally:
            os.close(writing)
        yield Daemon(process=process, pipe=reading)
    finally:
        os.close(reading)


def _process(module: str, options: str, log: Path, writing: int) -> subprocess.Popen[bytes]:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            # -P: a user's file in the current folder must not be imported in place of a module
            [sys.executable, "-P", "-m", module, options, str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={**ENVIRONMENT, **os.environ},  # the processes of its cluster inherit it
            start_new_session=True,
            pass_fds=(writing,),
        )
    finally:
        os.close(output)
