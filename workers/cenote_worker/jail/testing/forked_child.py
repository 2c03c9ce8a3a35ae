"""Runs work in a forked child, so that this process is unaffected, except for files."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from typing import Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

Plain = dict[str, object]
"""Data that JSON can represent."""

MAX_ANSWER: Final = 32 * 2**20
_PIECE: Final = 1 << 16


class ChildEnded(Exception):
    """The child has given no answer. reason: such as `signal 11`, or that it timed out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def in_forked_child(work: Callable[[], Plain], deadline: float) -> Plain:
    """The result of the work, from the child. deadline: on the monotonic clock. Raises ChildEnded.

    The child ends as soon as it has answered, even if it has started something that still runs.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _serve(work, writing)
    os.close(writing)
    try:
        data = _read(reading, deadline)
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if data is None:
        raise ChildEnded(_reason(status))
    answer: Plain = json.loads(data)
    return answer


def _serve(work: Callable[[], Plain], writing: int) -> None:
    """The child's life. It does not use the pipes of its parent."""
    try:
        sys.stdout = sys.stderr = StringIO()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        data = json.dumps(work()).encode()
        sent = memoryview(len(data).to_bytes(8) + data)
        while sent:
            sent = sent[os.write(writing, sent) :]
        signal.pause()  # the parent reads, and ends this
    finally:
        os._exit(1)


def _read(reading: int, deadline: float) -> bytes | None:
    """The answer; None when the child ended before it was complete. Raises ChildEnded."""
    data, size = bytearray(), 8
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            raise ChildEnded("it took too long")
        piece = os.read(reading, _PIECE)
        if not piece:
            return None
        data += piece
        if len(data) >= 8:
            size = 8 + int.from_bytes(data[:8])
        if size > MAX_ANSWER:
            raise ChildEnded("its answer is too large")
    return bytes(data[8:size])


def _reason(status: int) -> str:
    """How a child without an answer ended. This process's own signal comes after its end, if at all."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"it ended its process with status {os.waitstatus_to_exitcode(status)}"
