"""One request about a working directory."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_proto.v1 import jail_pb2
from cenote_worker.content import Content
from cenote_worker.history.step import StepKind
from cenote_worker.supervisor.protocol import Ask


@dataclass(frozen=True, slots=True)
class FileAsk:
    """One request, ready to be sent; whoever takes it closes it.

    message: without its content. shown: the path, printable. content: of a file that is to be written.
    """

    ask: Ask
    message: jail_pb2.FileRequest
    shown: str
    content: Content | None = None

    @property
    def change(self) -> tuple[StepKind, tuple[str, ...]] | None:
        """What is different when it has been carried out, if anything is."""
        if self.ask is not Ask.CHANGE_FILE:
            return None
        removes = self.message.operation == jail_pb2.FileRequest.DELETE
        return ("removal" if removes else "upload"), (self.shown,)

    def close(self) -> None:
        if self.content is not None:
            self.content.close()
