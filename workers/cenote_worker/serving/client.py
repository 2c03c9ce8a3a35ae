"""A client of one runtime, over however many streams it comes."""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Protocol

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import CenoteError
from cenote_worker.content import Content
from cenote_worker.hosted.attachment import AttachedRuntime
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.supervisor.requests import Withdraw


class Line(Protocol):
    """A client's stream, as far as others use it."""

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """Sends a frame. Takes the content over."""

    @property
    def full(self) -> bool:
        """The client does not keep up."""

    def forget(self, call: int) -> None:
        """Nobody waits for what is left of the content of this call."""

    def end(self, error: CenoteError | None) -> None:
        """Ends the stream, with a reason or as agreed."""

    def go_on(self) -> None:
        """The runtime takes calls again."""

    def close(self) -> None:
        """Nothing more is told; what runs is left behind. Closing twice is fine."""


class Client:
    """What of a client stays while its line is broken. On the server's loop only."""

    def __init__(self, id: str, tenant: str, hosted: HostedRuntime | AttachedRuntime) -> None:
        """hosted: the runtime, as its owner has it or an author; an author leaves with the client."""
        self.id = id
        self.tenant = tenant
        self.hosted = hosted
        self.line: Line | None = None
        self._cells: dict[str, Withdraw] = {}
        self._timer: TimerHandle | None = None

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """Sends a frame if the client has a line: what it must not miss is sent again when it returns."""
        if self.line is not None:
            self.line.tell(frame, content)
        elif content is not None:
            content.close()

    @property
    def full(self) -> bool:
        """It has a line, and does not keep up there."""
        return self.line is not None and self.line.full

    def forget(self, call: int) -> None:
        """Nobody waits for what is left of the content of this call."""
        if self.line is not None:
            self.line.forget(call)

    def leave_behind(self, key: str, withdraw: Withdraw) -> None:
        """A cell that goes on while its client has no line."""
        self._cells[key] = withdraw

    def claim(self, key: str) -> None:
        """The client asks for this cell again, or for anything else."""
        self._cells.pop(key, None)

    def give_up(self) -> None:
        """Takes back the cells that nobody asked for again."""
        cells, self._cells = self._cells, {}
        for withdraw in reversed(cells.values()):  # else the end of what runs would let the next one begin
            withdraw()

    def leave(self) -> None:
        """It does not come back. The runtime goes on without it."""
        self.give_up()
        if isinstance(self.hosted, AttachedRuntime):
            self.hosted.close()

    def wait(self, later: Callable[[Callable[[], None]], TimerHandle], then: Callable[[], None]) -> None:
        """Waits anew for the client to come, or to ask for what it left behind."""
        self.stop_waiting()
        self._timer = later(then)

    def stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
