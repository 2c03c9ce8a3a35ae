"""Listeners for a client's requests: called on the reactor's thread, they report on the server's loop."""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress

from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_worker.execution.results import StreamName
from cenote_worker.process.threads import Backlog
from cenote_worker.serving.limits import WINDOW
from cenote_worker.supervisor.requests import Outcome

MERGED = 64 << 10
"""Characters. Output printed while the connection was busy is merged up to this length."""


class ReplyListener:
    """Listens to a request that prints nothing."""

    def __init__(self, loop: AbstractEventLoop, settled: Callable[[Outcome], None]) -> None:
        """settled: called on the loop."""
        self._loop = loop
        self._settled = settled

    def output(self, _stream: StreamName, _text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None:
        post(self._loop, self._settled, outcome)


class CellListener:
    """Listens to a cell: keeps its output until it can be sent, within the window of the client."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        printed: Callable[[], None],
        settled: Callable[[Outcome], None],
        heard: int,
    ) -> None:
        """printed, settled: called on the loop; the first when `take` has something to give.

        heard: characters that the client has received on an earlier connection.
        """
        self._loop = loop
        self._printed = printed
        self._settled = settled
        self._lock = threading.Lock()
        self._pieces: list[tuple[StreamName, str]] = []
        self._taken = heard
        self._heard = heard
        self._backlog = Backlog(WINDOW)
        self._muted = False

    # -- on any thread --

    def missed(self, characters: int) -> None:
        """Counts lost output: the next position shows the gap."""
        with self._lock:
            self._taken += characters
            self._heard += characters

    def output(self, stream: StreamName, text: str) -> bool:
        with self._lock:
            if self._muted:
                return True
            first = not self._pieces
            self._pieces.append((stream, text))
            going = self._backlog.add(len(text))
        if first:
            post(self._loop, self._printed)
        return going

    def done(self, outcome: Outcome) -> None:
        post(self._loop, self._settled, outcome)

    # -- on the loop --

    def take(self) -> list[runtime_pb2.CellOutput]:
        """The output since the last call."""
        with self._lock:
            pieces, self._pieces = self._pieces, []
        taken = []
        for stream, text in _merged(pieces):
            self._taken += len(text)
            taken.append(
                make(runtime_pb2.CellOutput, is_stderr=stream == "stderr", text=text, position=self._taken)
            )
        return taken

    def hear(self, position: int) -> bool:
        """The client has the output up to `position`. True when a paused jail may go on."""
        with self._lock:
            before, self._heard = self._heard, max(self._heard, min(position, self._taken))
            return self._backlog.take(self._heard - before)

    def mute(self) -> bool:
        """The client reads no more. True when a paused jail may go on."""
        with self._lock:
            self._muted = True
            self._pieces.clear()
            return self._backlog.clear()


def post(loop: AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    """Runs the callback on the loop, unless the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def _merged(pieces: list[tuple[StreamName, str]]) -> list[tuple[StreamName, str]]:
    merged: list[tuple[StreamName, list[str]]] = []
    length = 0
    for stream, text in pieces:
        if merged and merged[-1][0] == stream and length + len(text) <= MERGED:
            merged[-1][1].append(text)
            length += len(text)
        else:
            merged.append((stream, [text]))
            length = len(text)
    return [(stream, "".join(texts)) for stream, texts in merged]
