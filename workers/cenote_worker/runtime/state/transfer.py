"""Transfers a state out of one jail, and into another."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import jail_pb2
from cenote_proto.v1.checkpoint_pb2 import ProcessOrder, RebuildGiven, RestoreEnd
from cenote_security.errors import UnavailableError
from cenote_security.printable import printable
from cenote_worker.checkpoints.errors import (
    CheckpointRefusedError,
    IncompleteForkError,
    IncompleteRestoreError,
)
from cenote_worker.checkpoints.restoring import Piece
from cenote_worker.checkpoints.state import State
from cenote_worker.checkpoints.state_receiver import (
    ENDED,
    CheckpointReceiver,
    ReceivedImage,
    ReceivedState,
    StateReceiver,
)
from cenote_worker.checkpoints.writer import CheckpointDraft
from cenote_worker.runtime import jail_requests
from cenote_worker.runtime.jail_requests import STATE_TIMEOUT
from cenote_worker.runtime.recorder import WaitingListener
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.frame_parser import DoneReply, RefusedReply
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.supervisor.requests import JailRequest, Outcome
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.content import Content
from cenote_worker.transport.image_parts import WHOLE, ImageParts
from cenote_worker.zygote.image_key import difference

STALL_SECONDS: Final = 60.0
"""The least time for a jail to send each part of its state: a short limit for calls must not keep a large state from
being stored, and a value that never ends must not block the receiver."""

_LEAST_FOR_AN_IMAGE: Final = 30.0
"""Seconds for a jail to become any image: a thousand times what it takes, on a machine that is busy."""

_IMAGE_BYTES_PER_SECOND: Final = 50e6
"""What a slow disk reads."""


def collected(
    runtime: HostedRuntime, supervisor: Supervisor, draft: CheckpointDraft, meanwhile: Callable[[], None]
) -> tuple[State, int]:
    """The state of that jail, when the earlier requests to it are over; all its parts are in the draft.

    The step whose end that is comes second, as the supervisor knows it. meanwhile: called once the jail was asked.

    Raises CheckpointRefusedError, what the jail's end raises, and OSError for errors of the draft.
    """
    known = Content.pack([b"".join(draft.places)])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    answer = _Answer(supervisor)
    supervisor.submit(jail_requests.make_checkpoint(known, theirs, answer, jail_pb2.MakeCheckpoint.CHUNKS))
    meanwhile()
    limit = 2 * runtime.policy.memory_bytes + runtime.policy.disk_bytes
    assembly, longest = supervisor.new_assembly(), max(STALL_SECONDS, runtime.policy.call_seconds)
    stalled = partial(answer.stalled, longest)
    with answer.reason_of_the_end():
        state = CheckpointReceiver(ours, draft, limit, assembly, answer.given_up, stalled).collect()
    outcome = answer.outcomes.get()
    if isinstance(outcome, Exception):
        raise outcome
    return state, answer.head


def handed_over(
    runtime: HostedRuntime, supervisor: Supervisor, patience: float | None = None
) -> tuple[ReceivedState, int]:
    """As `collected`, the state of that jail as a whole, and the step whose end it is.

    patience: seconds for all of it; None to wait for running cells however long they take, and then for as long as
    any call may take.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    answer = _Answer(supervisor, patience, runtime.policy.call_seconds)
    assembly = supervisor.new_assembly()
    form = jail_pb2.MakeCheckpoint.WHOLE if assembly is None else jail_pb2.MakeCheckpoint.WHOLE_IN_PIECES
    supervisor.submit(jail_requests.make_checkpoint(Content.pack([b""]), theirs, answer, form))
    limit = 2 * runtime.policy.memory_bytes + runtime.policy.disk_bytes
    with answer.reason_of_the_end():
        received = StateReceiver(ours, limit, assembly, answer.given_up, supervisor.sparing).receive()
    outcome = answer.outcomes.get()
    if isinstance(outcome, Exception):
        received.close()
        raise outcome
    return received, answer.head


class ImageRequest:
    """As `handed_over`, a request for the process of a jail itself, with its files unless it is IMAGE_ALONE.

    It is sent when this is made: what the jail is asked later comes after the image. The jail's copy waits until
    `received` is called, or `abandon`.
    """

    def __init__(
        self,
        runtime: HostedRuntime,
        supervisor: Supervisor,
        patience: float | None = None,
        *,
        form: jail_pb2.MakeCheckpoint.Form.ValueType = jail_pb2.MakeCheckpoint.IMAGE,
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._answer = _Answer(supervisor, patience, runtime.policy.call_seconds)
        self._channel = ours
        supervisor.submit(jail_requests.make_checkpoint(Content.pack([b""]), theirs, self._answer, form))
        limit = 2 * runtime.policy.memory_bytes + runtime.policy.disk_bytes
        self._receiver = StateReceiver(ours, limit, None, self._answer.given_up, supervisor.sparing)

    def give_up(self, reason: str) -> None:
        """Has `received`, and `check`, raise a CheckpointRefusedError from now on. On any thread."""
        self._answer.give_up(reason)
        with suppress(OSError):  # it was received
            self._channel.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Raises CheckpointRefusedError once it was given up."""
        if reason := self._answer.given_up():
            raise CheckpointRefusedError(reason)

    def abandon(self) -> None:
        """Ends the jail's copy, instead of `received`."""
        self._receiver.close()

    def received(self, *, partial: bool = False) -> tuple[ReceivedImage, int]:
        """The image, for the caller to close, and the step whose end it is.

        partial: it may lack something; otherwise that is refused before anything is written.
        Raises CheckpointRefusedError, what the jail's end raises, and OSError when memory is short.
        """
        self._answer.count_from_now()
        with self._answer.reason_of_the_end():
            received = self._receiver.receive_image(partial=partial)
        outcome = self._answer.outcomes.get()
        if isinstance(outcome, Exception):
            received.close()
            raise outcome
        return received, self._answer.head


OTHER_ENVIRONMENT: Final = "its image is of another environment: "


def put_image(supervisor: Supervisor, state: ReceivedImage, *, draw_anew: bool, patience: float) -> None:
    """Replaces the jail's worker by that process, with its files; the caller still owns the state.

    Raises CheckpointRefusedError when it cannot, UnavailableError.
    """
    zygote, common = state.zygote, None
    if zygote is not None:
        if clause := difference(state.key, supervisor.image_key):
            raise CheckpointRefusedError(OTHER_ENVIRONMENT + clause)
        common = Content(size=zygote.file.size, count=0, memory=zygote.file)
    if state.state.files:
        given = make(RebuildGiven, files=range(len(state.state.files)))
        put_whole(supervisor, state, given, partial=False, patience=patience)
    become(supervisor, state.image, common, draw_anew=draw_anew, patience=patience)
    if zygote is not None:
        supervisor.set_common(zygote.file.fileno())  # the image of this process lacks that memory again


def image_patience(size: int) -> float:
    """The seconds that a jail may take to become an image of this many bytes."""
    return _LEAST_FOR_AN_IMAGE + size / _IMAGE_BYTES_PER_SECOND


def become(
    supervisor: Supervisor,
    image: Content,
    common: Content | None = None,
    base: Content | None = None,
    *,
    draw_anew: bool,
    parts: ImageParts = WHOLE,
    patience: float = math.inf,
) -> None:
    """Replaces the jail's worker by the process in the image; the caller still owns that. Raises as `put_image`.

    base, parts: of an image that is not whole. common: the memory of the zygote that the image is of, which a jail of
    the same zygote needs where it has unmapped some of that. A jail that has not become it after `patience`, or after
    the time that an image of this size may take, is ended.
    """
    message, descriptors = jail_pb2.Request(), list[int]()
    message.restore.kind = jail_pb2.RestorePiece.IMAGE
    order = ProcessOrder(draw_anew=draw_anew, parts=parts.to_message())
    Content.of_bytes(order.SerializeToString()).to_wire(message.restore.content, descriptors)
    for memory in (image, base, common):
        if memory is not None:
            memory.to_wire(message.restore.memories.add(), descriptors)
    outcome = _restored(supervisor, message, descriptors, min(patience, image_patience(image.size)))
    if isinstance(outcome, RefusedReply):
        raise CheckpointRefusedError(printable(outcome.message))


def put_whole(
    supervisor: Supervisor,
    whole: ReceivedState | ReceivedImage,
    what: RestoreEnd | RebuildGiven,
    *,
    partial: bool,
    patience: float = STATE_TIMEOUT,
) -> tuple[str, ...]:
    """Puts a whole state into the jail and waits until it is there; the caller still owns it. patience: seconds.

    what: all of it; or the inputs of steps that are run before the rest is put. Returns the differences from the
    original jail, a line each.
    Raises IncompleteForkError, unless `partial` leaves out what cannot be rebuilt; UnavailableError.
    """
    message, descriptors = jail_pb2.Request(), list[int]()
    kinds = jail_pb2.RestorePiece
    message.restore.kind = kinds.WHOLE if isinstance(what, RestoreEnd) else kinds.GIVEN
    message.restore.partial = partial
    described = Content.pack([whole.state.message.SerializeToString(), what.SerializeToString()])
    described.to_wire(message.restore.content, descriptors)
    for memory in whole.memories:
        memory.to_wire(message.restore.memories.add(), descriptors)
    outcome = _restored(supervisor, message, descriptors, patience)
    described.close()
    if isinstance(outcome, RefusedReply):
        raise IncompleteForkError((printable(outcome.message),))
    return outcome.differing if isinstance(outcome, DoneReply) else ()


def put(
    supervisor: Supervisor, piece: Piece, name: str, number: int, *, partial: bool = False
) -> tuple[str, ...]:
    """Puts a piece into the jail and waits until it is there. Returns the differences from the stored piece.

    name, number: of the checkpoint, for errors. partial: the jail may leave out parts that it can report as missing.
    Raises IncompleteRestoreError, UnavailableError.
    """
    outcome = _taken_in(supervisor, piece, partial=partial)
    if isinstance(outcome, RefusedReply):
        refusal = printable(outcome.message)
        raise IncompleteRestoreError(name, number, (f"{', '.join(piece.names[:20])}: {refusal}",))
    return outcome.differing if isinstance(outcome, DoneReply) else ()


def told(
    supervisor: Supervisor, piece: Piece, *, partial: bool = False, timeout: float = STATE_TIMEOUT
) -> str:
    """Why the jail refuses a piece; empty once it has it. Raises UnavailableError."""
    outcome = _taken_in(supervisor, piece, partial=partial, timeout=timeout)
    return printable(outcome.message) if isinstance(outcome, RefusedReply) else ""


def _taken_in(
    supervisor: Supervisor, piece: Piece, *, partial: bool, timeout: float = STATE_TIMEOUT
) -> Outcome:
    message, descriptors = jail_pb2.Request(), list[int]()
    message.restore.kind, message.restore.partial = piece.kind, partial
    message.restore.lent.update(piece.lent)
    piece.content.to_wire(message.restore.content, descriptors)
    if piece.file >= 0:
        descriptors.append(piece.file)
    return _restored(supervisor, message, descriptors, timeout)


def _restored(
    supervisor: Supervisor,
    message: jail_pb2.Request,
    descriptors: list[int],
    patience: float = STATE_TIMEOUT,
) -> Outcome:
    """The jail's answer to a request to restore a state. Raises UnavailableError."""
    delivery = WaitingListener()
    supervisor.submit(JailRequest(RequestKind.RESTORE, message, delivery, descriptors, timeout=patience))
    outcome = delivery.outcomes.get()
    if isinstance(outcome, Exception) and not isinstance(outcome, RefusedReply):
        raise UnavailableError(f"the runtime's jail ended while it was filled: {outcome}") from outcome
    return outcome


class _Answer(WaitingListener):
    """The jail's answer to the request for a copy, and whether the copy still has time."""

    def __init__(
        self, supervisor: Supervisor, patience: float | None = None, afterwards: float = STATE_TIMEOUT
    ) -> None:
        """patience: seconds for all of it, or None: then `afterwards` seconds from when the copy is there."""
        super().__init__()
        self._supervisor = supervisor
        self.head = 0
        self._answered = math.inf
        self._patience = patience or afterwards
        self._counts_from_answer = patience is None
        self._deadline = None if patience is None else time.monotonic() + patience
        self._failure = ""

    def done(self, outcome: Outcome) -> None:
        self.head = self._supervisor.head
        self._answered = time.monotonic()
        if isinstance(outcome, RefusedReply):
            self._failure = printable(outcome.message)
            outcome = CheckpointRefusedError(self._failure)
        elif isinstance(outcome, Exception):
            self._failure = str(outcome)
        elif self._counts_from_answer:
            self._deadline = time.monotonic() + self._patience
        super().done(outcome)

    def count_from_now(self) -> None:
        """The copy has waited for its receiver until now."""
        if self._counts_from_answer and self._deadline is not None:
            self._deadline = time.monotonic() + self._patience

    @contextmanager
    def reason_of_the_end(self) -> Iterator[None]:
        """The end of the copy's channel may arrive before the jail's reason for it, which is raised instead."""
        try:
            yield
        except CheckpointRefusedError as refused:
            if refused.reason == ENDED and isinstance(outcome := self.outcomes.get(), Exception):
                raise outcome from None
            raise

    def stalled(self, longest: float, seconds: float) -> str:
        """See CopyLine. While earlier cells run the copy has not begun."""
        if min(seconds, time.monotonic() - self._answered) <= longest:
            return ""
        return f"one variable took longer than {longest:g} s to be pickled"

    def give_up(self, reason: str) -> None:
        self._failure = reason

    def given_up(self) -> str:
        """The reason to stop waiting; empty while there is none."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            return f"the copy of its state took longer than {self._patience:g} s"
        return self._failure
