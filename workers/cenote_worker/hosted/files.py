"""One request about a working directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cenote_proto.v1 import jail_pb2
from cenote_worker.supervisor.protocol import Ask


@dataclass(frozen=True, slots=True)
class FileAsk:
    """One request, ready to be sent; whoever sends it calls what is `owned`. shown: the path, printable."""

    ask: Ask
    message: jail_pb2.Request
    shown: str
    descriptors: list[int] = field(default_factory=list)
    owned: list[Callable[[], None]] = field(default_factory=list)

    def dispose(self) -> None:
        """It is not going to be sent."""
        for close in self.owned:
            close()
        self.owned.clear()
