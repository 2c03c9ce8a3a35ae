"""One request to a remote runtime, from being sent to its answer. No I/O of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import ProtocolViolation
from cenote_worker.content import Content
from cenote_worker.results import StreamName
from cenote_worker.wire.contents import Incoming, inline
from cenote_worker.wire.parts import Joiner
from cenote_worker.wire.replies import Reply, payload_of, to_reply

HEARD_EVERY: Final = 64 * 1024
"""Characters of output after which the server is told how far its client is."""

FRAMES: Final = 256 * 2**20
"""Bytes of an answer that is no content: output and displays of one cell, at a policy's largest."""

Answer = runtime_pb2.ServerFrame | Reply | Exception
"""A frame that is the whole answer; a reply with its content; or the error to raise."""

Output = Callable[[StreamName, str], bool]
"""Takes output as it comes; False when it cannot keep up."""


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """A request that waits for its answer.

    settle: called once, must not raise. limit: bytes of content in the answer. changes: repeating it without its key
    could do something twice. content: what follows the frame; the call owns it. output, progress: hear what comes
    before the answer. position: characters of output that were heard. sent: the server may have had it. slow: whoever
    hears the output cannot keep up.
    """

    frame: runtime_pb2.ClientFrame
    settle: Callable[[Answer], None]
    limit: int
    changes: bool = False
    content: Content | None = None
    output: Output | None = None
    progress: Callable[[runtime_pb2.ApplyProgress], None] | None = None
    position: int = 0
    sent: bool = False
    slow: bool = False
    _place: int = 0
    _sent_before: bool = False
    _told: int = 0
    _incoming: Incoming | None = None
    _reply: jail_pb2.Reply | None = None
    _joiner: Joiner | None = None

    def __post_init__(self) -> None:
        if self.changes and not self.frame.key:
            self.frame.key = utf8_text(new_key())

    @property
    def number(self) -> int:
        return self.frame.call

    def again(self, place: int) -> runtime_pb2.ClientFrame:
        """The frame for a new stream, of which it is the place-th call (from 1); what came of the answer on the
        old one is forgotten.
        """
        self._drop_answer()
        self._place, self._sent_before, self.sent = place, self.sent, True
        self._told = self.position
        if self.frame.WhichOneof("body") == "cell":
            self.frame.cell.heard = self.position
        return self.frame

    def hear(self, frame: runtime_pb2.ServerFrame) -> Answer | None:
        """The answer, once it is whole. Raises ProtocolViolation."""
        match frame.WhichOneof("body"):
            case "output":
                self._print(frame.output)
                return None
            case "apply_progress":
                if self.progress is not None:
                    self.progress(frame.apply_progress)
                return None
            case "part":
                return self._join(frame.part)
            case "chunk":
                return self._add(frame.chunk)
            case "reply":
                return self._begin(frame.reply)
        return frame

    def ended_behind(self, begun: int) -> None:
        """The server has ended the stream, and had begun so many of its calls."""
        if self._place > begun:
            self.sent = self._sent_before

    def to_tell(self, *, now: bool = False) -> runtime_pb2.ClientFrame | None:
        """How far the output was heard, if it is time to say so."""
        if self.slow or self.position == self._told or (self.position - self._told < HEARD_EVERY and not now):
            return None
        self._told = self.position
        return runtime_pb2.ClientFrame(call=self.number, heard=runtime_pb2.Heard(position=self.position))

    def end(self, answer: Answer) -> None:
        """Gives the answer to whoever waits."""
        self._drop_answer()
        self.close()
        self.settle(answer)

    def close(self) -> None:
        """Nothing of it has to be sent any more."""
        if self.content is not None:
            self.content.close()
            self.content = None

    def _print(self, output: runtime_pb2.CellOutput) -> None:
        fresh = output.position - self.position
        if fresh <= 0:  # sent again after a broken line
            return
        self.position = output.position
        text = output.text[-fresh:]
        if self.output is not None and not self.output("stderr" if output.is_stderr else "stdout", text):
            self.slow = True

    def _join(self, part: runtime_pb2.Part) -> Answer | None:
        if self._joiner is None:
            self._joiner = Joiner(self.limit)
        whole = self._joiner.add(part)
        return None if whole is None else self.hear(whole)

    def _begin(self, reply: jail_pb2.Reply) -> Answer | None:
        payload = payload_of(reply)
        if payload is None:
            return to_reply(reply, None)
        if not payload.attached:
            return to_reply(reply, inline(payload, self.limit))
        self._reply, self._incoming = reply, Incoming(payload, self.limit)
        return None

    def _add(self, chunk: runtime_pb2.Chunk) -> Answer | None:
        if self._incoming is None or self._reply is None:
            raise ProtocolViolation("a chunk of nothing")
        self._incoming.add(chunk.data)
        if not chunk.last:
            return None
        content, self._incoming = self._incoming.finish(), None
        return to_reply(self._reply, content)

    def _drop_answer(self) -> None:
        if self._incoming is not None:
            self._incoming.close()
        self._incoming = self._reply = self._joiner = None


def new_key() -> str:
    """For a call that changes something: known to nobody else."""
    return secrets.token_hex(16)
