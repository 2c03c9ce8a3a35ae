"""Where host calls are relayed: one served runtime, and its clients, as the relay sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cenote_proto.v1 import runtime_pb2
from cenote_worker.content import Content
from cenote_worker.serving.references import ReferenceStore


class Offerer(Protocol):
    """A client that may have offered functions and objects."""

    @property
    def id(self) -> str: ...

    @property
    def tenant(self) -> str: ...

    @property
    def full(self) -> bool:
        """It has not taken what it was told."""

    def forget(self, call: int) -> None:
        """Nobody waits for what is left of the content of this call."""

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        """Sends a frame if the client has a line. Takes the content over."""


class Place(Protocol):
    """One served runtime."""

    @property
    def id(self) -> str: ...

    @property
    def step(self) -> int: ...

    @property
    def references(self) -> ReferenceStore: ...

    def client(self, client: str) -> Offerer | None:
        """The client of this id, unless it has gone for good."""

    def only_client(self) -> Offerer | None:
        """The client, if there is exactly one."""

    def soon(self, callback: Callable[..., None], *arguments: object) -> None:
        """From any thread: runs the callback on the server's loop."""

    def apart(self, work: Callable[[], object]) -> object:
        """From the loop: does something that may block on a thread. It raises nothing."""


def holders_of(runtime: str) -> str:
    """What the names of all holders begin with that relay host calls of this runtime, or did before."""
    return f"runtime {runtime} "
