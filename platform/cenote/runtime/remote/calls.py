"""Calls to a remote runtime: requests as frames, and what came back as outcomes. No I/O.

A `Call` is one request from being sent to its answer, over as many streams as that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cenote.runtime.remote.channels import new_key
from cenote_proto.scalars import make, utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_security.errors import JailError, ProtocolViolation, RuntimeClosedError
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.execution.results import (
    ExecutionResult,
    JailStatus,
    LiveOutput,
    RanInFull,
    SnapshotInfo,
    StreamName,
)
from cenote_worker.history.events import ArtifactDeclared
from cenote_worker.runtime.injection import Injection
from cenote_worker.runtime.jail_requests import PYTHON, WorkdirRequest, WrittenForm
from cenote_worker.runtime.patch_jobs import BuildRequest, PatchRequest
from cenote_worker.runtime.scratch_runtime import RehearsalRequest
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.frame_parser import read_info
from cenote_worker.supervisor.requests import Outcome, SharedReply
from cenote_worker.transport.content import Content, Holding
from cenote_worker.wire.chunking import Incoming, Joiner, announce, inline
from cenote_worker.wire.patches import to_built, to_patched
from cenote_worker.wire.replies import Reply, payload_of, to_reply, to_rollback, to_snapshots
from cenote_worker.wire.results import to_live_output, to_result, to_status

HEARD_EVERY: Final = 64 * 1024
"""Characters of output after which the server is told how far its client is."""

FRAMES: Final = 256 * 2**20
"""Bytes of an answer that is no content: output and displays of one cell, at a policy's largest."""

Answer = runtime_pb2.ServerFrame | Reply | Exception
"""A frame that is the whole answer; a reply with its content; or the error to raise."""

Output = Callable[[StreamName, str], bool]
"""Takes output as it comes; False when it cannot keep up."""


@dataclass(slots=True, kw_only=True, eq=False)
class PendingCall:
    """A request that waits for its answer.

    settle: called once, must not raise. limit: bytes of content in the answer. changes: repeating it without its key
    could do something twice. content: what follows the frame; the call owns it. output, progress: hear what comes
    before the answer. position: characters of output that were heard. sent: the server may have had it. slow: the
    listener of the output cannot keep up.
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
        """Gives the answer to the caller."""
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


Request = tuple[runtime_pb2.ClientFrame, Content | None]
"""A frame, and the content that follows it; the receiver owns the content."""


def cell(code: str, timeout: float | None, cause: str = "", *, atomic: bool = False) -> Request:
    content = Content.pack([code.encode("utf-8", "surrogatepass")])
    message = make(runtime_pb2.Cell, timeout=timeout or 0, cause=cause, atomic=atomic)
    frame = runtime_pb2.ClientFrame(cell=message)
    return frame, content if announce(frame.cell.code, content) else None


def patch(request: PatchRequest) -> Request:
    frame, changed = runtime_pb2.ClientFrame(), [step for step in request.steps if step.change]
    message = frame.apply
    message.head, message.cause, message.aside = request.head, utf8_text(request.cause), request.aside
    message.not_atomic, message.goes_on = not request.atomic, not request.stop_on_failure
    message.step_seconds = request.timeout or 0
    for step in request.steps:
        make(message.steps.add, origin=step.origin, change=step.change)
    content = Content.pack([step.code.encode("utf-8", "surrogatepass") for step in changed])
    return frame, content if announce(message.codes, content) else None


def build(request: BuildRequest) -> Request:
    message = runtime_pb2.Build(
        not_atomic=not request.atomic,
        goes_on=not request.stop_on_failure,
        aside=request.aside,
        step_seconds=request.timeout or 0,
        keep_failing=request.keep_failing,
        test_seconds=request.test_seconds,
    )
    return runtime_pb2.ClientFrame(build=message), None


def declaration(units: Iterable[ArtifactDeclared]) -> runtime_pb2.ClientFrame:
    frame = runtime_pb2.ClientFrame()
    frame.declare.SetInParent()
    for unit in units:
        name, depends_on = utf8_text(unit.name), map(utf8_text, unit.depends_on)
        make(frame.declare.units.add, name=name, kind=unit.kind, depends_on=depends_on, dropped=unit.dropped)
    return frame


def rehearsal(request: RehearsalRequest) -> Request:
    """Its key tells the platform that it is the same once more, of which only the last is wanted."""
    message = make(runtime_pb2.Rehearse, steps=request.steps, name=request.name, seconds=request.seconds)
    frame = make(runtime_pb2.ClientFrame, key=new_key(), rehearse=message)
    content = Content.pack([request.source.encode("utf-8", "surrogatepass")])
    return frame, content if announce(frame.rehearse.source, content) else None


def full_run(head: int, number: int) -> Request:
    asked = runtime_pb2.RunInFull(head=head, number=number)
    return make(runtime_pb2.ClientFrame, key=new_key(), run_in_full=asked), None


def end_of_full_run(number: int) -> runtime_pb2.ClientFrame:
    return runtime_pb2.ClientFrame(end_full_run=runtime_pb2.EndFullRun(number=number))


def injection(injected: Injection, *, replace: bool) -> Request:
    """The injection stays the caller's."""
    frame = runtime_pb2.ClientFrame()
    message = frame.injection
    message.name, message.replaces = utf8_text(injected.single), utf8_text(injected.replaces)
    message.replace = replace
    message.names.extend(utf8_texts(injected.names))
    message.hosts.extend(injected.hosts)
    if injected.reference:
        message.reference = utf8_text(injected.reference)
        return frame, None
    return frame, injected.values.duplicate() if announce(message.values, injected.values) else None


def fetch(name: str, *, opaque: bool, written: WrittenForm = PYTHON) -> Request:
    frame = runtime_pb2.ClientFrame()
    frame.fetch.name, frame.fetch.opaque = utf8_text(name), opaque
    frame.fetch.form, frame.fetch.most = written.form, written.most
    return frame, None


def share(name: str) -> Request:
    return runtime_pb2.ClientFrame(share=make(runtime_pb2.Share, name=name)), None


def share_together(names: Sequence[str], states: Sequence[str]) -> Request:
    return runtime_pb2.ClientFrame(share=make(runtime_pb2.Share, together=names, states=states)), None


def deletion(name: str) -> Request:
    frame = runtime_pb2.ClientFrame()
    frame.delete.name = utf8_text(name)
    return frame, None


def description() -> Request:
    frame = runtime_pb2.ClientFrame()
    frame.describe.SetInParent()
    return frame, None


def file(ask: WorkdirRequest) -> Request:
    """Takes over what the question owns."""
    frame = runtime_pb2.ClientFrame(file=ask.message)
    large = ask.content is not None and announce(frame.file.content, ask.content)
    return frame, ask.content if large else None


def snapshot(label: str) -> Request:
    frame = runtime_pb2.ClientFrame()
    frame.snapshot.label = utf8_text(label)
    return frame, None


def rollback(to: int | str) -> Request:
    target = make(runtime_pb2.RollBack, label=to) if isinstance(to, str) else runtime_pb2.RollBack(step=to)
    return runtime_pb2.ClientFrame(roll_back=target), None


def outcome_of(answer: Answer) -> Outcome:
    if isinstance(answer, runtime_pb2.ServerFrame):
        body = answer.WhichOneof("body")
        if body == "result":
            done = to_result(answer.result)
            return NotDurableError(done, answer.result.not_durable) if answer.result.not_durable else done
        if body == "rolled_back":
            return to_rollback(answer.rolled_back)
        if body == "applied":
            return to_patched(answer.applied)
        if body == "built":
            return to_built(answer.built)
        if body == "ran_in_full":
            return RanInFull(steps=tuple(answer.ran_in_full.steps))
        return JailError(f"the platform answered with {body}, which is no answer to this")
    return answer


def cell_outcome_of(answer: Answer) -> Outcome:
    """A cell whose runtime was closed meanwhile has a result too, as in an embedded runtime."""
    if isinstance(answer, RuntimeClosedError):
        death = JailExit(reason="closed", text=str(answer).partition(";")[0])  # without the advice
        return ExecutionResult(success=False, error=death.as_error(), state="lost")
    return outcome_of(answer)


def shared_by(keep: Callable[[str], Holding]) -> Callable[[Answer], Outcome]:
    """Reads what was shared. keep: makes a right of a reference that this client was given."""

    def read(answer: Answer) -> Outcome:
        if isinstance(answer, runtime_pb2.ServerFrame) and answer.HasField("shared"):
            info = read_info(answer.shared.info)
            return SharedReply(keep(answer.shared.reference), info)
        return outcome_of(answer)

    return read


def status_of(answer: Answer) -> JailStatus | Exception:
    if isinstance(answer, runtime_pb2.ServerFrame) and answer.HasField("status"):
        return to_status(answer.status)
    return answer if isinstance(answer, Exception) else JailError("the platform gave no status")


def live_output(after: LiveOutput) -> runtime_pb2.ClientFrame:
    seen = runtime_pb2.OutputPosition(step=after.step or 0, position=after.end)
    return runtime_pb2.ClientFrame(status=runtime_pb2.StatusQuestion(output_after=seen))


def live_output_of(answer: Answer) -> LiveOutput | Exception:
    if isinstance(answer, runtime_pb2.ServerFrame) and answer.HasField("status"):
        return to_live_output(answer.status)
    return answer if isinstance(answer, Exception) else JailError("the platform gave no output")


def snapshots_of(answer: Answer) -> tuple[SnapshotInfo, ...] | Exception:
    if isinstance(answer, runtime_pb2.ServerFrame) and answer.HasField("snapshots"):
        return to_snapshots(answer.snapshots)
    return answer if isinstance(answer, Exception) else JailError("the platform did not say what is kept")
