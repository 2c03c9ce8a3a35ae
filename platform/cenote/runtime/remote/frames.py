"""What a runtime is asked, as frames; and what came back, as outcomes. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cenote.runtime.remote.call import Answer, new_key
from cenote_proto.scalars import make, utf8_text, utf8_texts
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import JailError, RuntimeClosedError
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.content import Content
from cenote_worker.history.events import Declared
from cenote_worker.holding import Holding
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.patching import BuildRequest, PatchRequest
from cenote_worker.hosted.rehearsal import RehearsalRequest
from cenote_worker.hosted.value_forms import PYTHON, Written
from cenote_worker.results import ExecutionResult, JailStatus, RanInFull, SnapshotInfo
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.edge import read_info
from cenote_worker.supervisor.requests import Outcome, SharedReply
from cenote_worker.wire.builds import to_built
from cenote_worker.wire.contents import announce
from cenote_worker.wire.patches import to_patched
from cenote_worker.wire.results import to_result, to_status
from cenote_worker.wire.snapshots import to_rollback, to_snapshots

Request = tuple[runtime_pb2.ClientFrame, Content | None]
"""A frame, and what follows it; whoever takes it owns that."""


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


def declaration(units: Iterable[Declared]) -> runtime_pb2.ClientFrame:
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


def fetch(name: str, *, opaque: bool, written: Written = PYTHON) -> Request:
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


def file(ask: FileAsk) -> Request:
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
        death = Death(reason="closed", text=str(answer).partition(";")[0])  # without the advice
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


def snapshots_of(answer: Answer) -> tuple[SnapshotInfo, ...] | Exception:
    if isinstance(answer, runtime_pb2.ServerFrame) and answer.HasField("snapshots"):
        return to_snapshots(answer.snapshots)
    return answer if isinstance(answer, Exception) else JailError("the platform did not say what is kept")
