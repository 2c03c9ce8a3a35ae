"""Converts events to messages and back: they are stored and sent in this form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from google.protobuf.message import DecodeError

from cenote_proto.scalars import make, utf8_items, utf8_text, utf8_texts
from cenote_proto.v1 import history_pb2, runtime_pb2
from cenote_security.errors import MalformedValueError, ProtocolViolation
from cenote_worker.execution import messages
from cenote_worker.execution.results import to_kept_as
from cenote_worker.history.events import (
    EFFECT_NAMES,
    EFFECTS,
    ArtifactDeclared,
    EnvironmentUsed,
    Event,
    FileStored,
    HeadMoved,
    InitialNames,
    RanTest,
    SuiteOutcome,
    ValueDropped,
    ValuesInjected,
    ValueStored,
    VariablesDescribed,
)
from cenote_worker.history.history import History
from cenote_worker.history.step import HostCallRecord, StepKind, StepRecord, StepStatus
from cenote_worker.supervisor.channels.host_calls import from_failure, to_failure
from cenote_worker.supervisor.frame_parser import read_error, read_info
from cenote_worker.wire.results import (
    from_bundle,
    from_error,
    from_info,
    from_usage,
    to_bundle,
    to_usage,
)


def fill_declared(message: history_pb2.UnitDeclared, event: ArtifactDeclared) -> None:
    message.name, message.kind, message.author = utf8_texts((event.name, event.kind, event.author))
    message.depends_on.extend(utf8_texts(event.depends_on))
    message.step, message.dropped = event.step, event.dropped


def to_declared(message: history_pb2.UnitDeclared) -> ArtifactDeclared:
    return ArtifactDeclared(
        name=message.name,
        kind=message.kind,
        depends_on=tuple(message.depends_on),
        author=message.author,
        step=message.step,
        dropped=message.dropped,
    )


def fill_tested(message: history_pb2.SuiteTested, event: SuiteOutcome) -> None:
    message.SetInParent()
    message.suite, message.step = utf8_text(event.suite), event.step
    message.units.update(utf8_items(event.units))
    for test in event.tests:
        _fill_test(message.tests.add(), test)


def to_tested(message: history_pb2.SuiteTested) -> SuiteOutcome:
    return SuiteOutcome(
        suite=message.suite,
        step=message.step,
        tests=tuple(map(_to_test, message.tests)),
        units=MappingProxyType(dict(message.units)),
    )


def _fill_test(message: history_pb2.TestRun, test: RanTest) -> None:
    message.name, message.outcome = utf8_text(test.name), utf8_text(test.outcome)
    message.error_type, message.message = utf8_text(test.error_type), utf8_text(test.message)
    message.file, message.traceback = utf8_text(test.file), utf8_text(test.traceback)
    message.span.extend(test.span)
    message.used.update(utf8_items(test.used))
    message.unsteady, message.seconds, message.step = utf8_text(test.unsteady), test.seconds, test.step


def _to_test(message: history_pb2.TestRun) -> RanTest:
    return RanTest(
        name=message.name,
        outcome=message.outcome,
        error_type=message.error_type,
        message=message.message,
        file=message.file,
        span=tuple(message.span),
        traceback=message.traceback,
        used=MappingProxyType(dict(message.used)),
        unsteady=message.unsteady,
        seconds=message.seconds,
        step=message.step,
    )


_KINDS: Final[Mapping[StepKind, history_pb2.Step.Kind.ValueType]] = {
    "cell": history_pb2.Step.CELL,
    "injection": history_pb2.Step.INJECTION,
    "deletion": history_pb2.Step.DELETION,
    "upload": history_pb2.Step.UPLOAD,
    "removal": history_pb2.Step.REMOVAL,
    "unrecorded": history_pb2.Step.UNRECORDED,
    "process": history_pb2.Step.PROCESS,
}
_STATUSES: Final[Mapping[StepStatus, history_pb2.Step.Status.ValueType]] = {
    "ok": history_pb2.Step.OK,
    "failed": history_pb2.Step.FAILED,
    "rolled_back": history_pb2.Step.ROLLED_BACK,
    "lost": history_pb2.Step.LOST,
    "refused": history_pb2.Step.REFUSED,
}
_KIND_NAMES: Final = {number: kind for kind, number in _KINDS.items()}
_STATUS_NAMES: Final = {number: status for status, number in _STATUSES.items()}

MAX_EXCERPT: Final = 4 * 2**20
"""Bytes of an excerpt, unless one event is larger: a server sends this much before it serves other clients."""


def from_event(event: Event) -> bytes:
    message = history_pb2.HistoryEvent()
    if isinstance(event, StepRecord):
        _fill_step(message.step, event)
    elif isinstance(event, HeadMoved):
        message.moved.head, message.moved.reason = event.head, utf8_text(event.reason)
    elif isinstance(event, InitialNames):
        message.begun.SetInParent()
        message.begun.names.extend(utf8_texts(event.names))
        message.begun.files.update(utf8_items(event.files))
        for each in event.values:
            make(message.begun.values.add, names=each.names, content=each.content, replaces=each.replaces)
    elif isinstance(event, FileStored):
        message.kept.digest = utf8_text(event.digest)
        if event.data is not None:
            message.kept.data = event.data
    elif isinstance(event, ValueStored):
        message.value_kept.digest = utf8_text(event.digest)
        if event.data is not None:
            message.value_kept.data = event.data
    elif isinstance(event, ValueDropped):
        message.value_gone.content = utf8_text(event.content)
    elif isinstance(event, ArtifactDeclared):
        fill_declared(message.declared, event)
    elif isinstance(event, SuiteOutcome):
        fill_tested(message.tested, event)
    elif isinstance(event, EnvironmentUsed):
        made = message.environment
        made.SetInParent()
        made.digest, made.python = utf8_text(event.digest), utf8_text(event.python)
        made.lock = utf8_text(event.lock)
        made.packages.extend(utf8_texts(event.packages))
        made.after = event.after
    else:
        message.described.step = event.step
        message.described.variables.extend(map(from_info, event.variables))
        message.described.gone.extend(utf8_texts(event.gone))
    return message.SerializeToString()


def to_event(data: bytes) -> Event:
    """The event of a message. Raises MalformedValueError for a message that this version of Cenote does not write."""
    try:
        return _to_event(history_pb2.HistoryEvent.FromString(data))
    except DecodeError:
        raise MalformedValueError("an event of a history that is no message") from None
    except ProtocolViolation as violation:
        raise MalformedValueError(f"an event of a history: {violation}") from None
    except KeyError as error:
        raise MalformedValueError(f"an event of a history with an unknown number {error}") from None


def _to_event(message: history_pb2.HistoryEvent) -> Event:
    match message.WhichOneof("body"):
        case "step":
            return _to_step(message.step)
        case "moved":
            return HeadMoved(head=message.moved.head, reason=message.moved.reason)
        case "begun":
            files = MappingProxyType(dict(message.begun.files))
            values = tuple(map(_to_put_in, message.begun.values))
            return InitialNames(names=tuple(message.begun.names), files=files, values=values)
        case "kept":
            data = message.kept.data if message.kept.HasField("data") else None
            return FileStored(digest=message.kept.digest, data=data)
        case "value_kept":
            data = message.value_kept.data if message.value_kept.HasField("data") else None
            return ValueStored(digest=message.value_kept.digest, data=data)
        case "value_gone":
            return ValueDropped(content=message.value_gone.content)
        case "described":
            variables = tuple(map(read_info, message.described.variables))
            gone = tuple(message.described.gone)
            return VariablesDescribed(step=message.described.step, variables=variables, gone=gone)
        case "declared":
            return to_declared(message.declared)
        case "tested":
            return to_tested(message.tested)
        case "environment":
            return EnvironmentUsed(
                digest=message.environment.digest,
                python=message.environment.python,
                packages=tuple(message.environment.packages),
                lock=message.environment.lock,
                after=message.environment.after,
            )
    raise MalformedValueError("an event of a history of an unknown kind")


def _to_put_in(message: history_pb2.StateBegunWith) -> ValuesInjected:
    return ValuesInjected(names=tuple(message.names), content=message.content, replaces=message.replaces)


def from_history(history: History, after: int) -> runtime_pb2.History:
    """The events of a history from a position on, as many as fit one message."""
    message, size, position = make(runtime_pb2.History, id=history.id), 0, min(after, history.size)
    while position < history.size and size < MAX_EXCERPT:
        event = from_event(_without_data(history.event(position)))
        message.events.append(event)
        size += len(event)
        position += 1
    message.next, message.more = position, position < history.size
    return message


def _without_data(event: Event) -> Event:
    """The event as sent to clients: digests suffice for planning, and they wrote the contents themselves."""
    return replace(event, data=None) if isinstance(event, FileStored | ValueStored) else event


def _fill_step(message: history_pb2.Step, record: StepRecord) -> None:
    message.number, message.parent, message.origin = record.number, record.parent, record.origin
    message.reused = record.outcome == "reused"
    message.kind, message.status = _KINDS[record.kind], _STATUSES[record.status]
    message.code = record.code.encode("utf-8", "surrogatepass")
    message.names.extend(utf8_texts(record.names))
    message.content = utf8_text(record.content)
    message.author, message.private = utf8_text(record.author), record.private
    message.cause, message.shed = utf8_text(record.cause), record.shed
    _fill_result(message, record)
    if record.trace is not None:
        messages.fill_trace(message.trace, record.trace)
    message.host_calls.extend(map(_from_call, record.host_calls))
    message.dropped_calls = record.dropped_calls
    message.started, message.duration = record.started, record.duration
    message.timeout, message.atomic = record.timeout, record.atomic
    message.kept_as = utf8_text(record.kept_as)
    message.usage.CopyFrom(from_usage(record.usage))


def _fill_result(message: history_pb2.Step, record: StepRecord) -> None:
    message.stdout, message.stderr = utf8_text(record.stdout), utf8_text(record.stderr)
    message.outputs.extend(map(from_bundle, record.outputs))
    if record.value is not None:
        message.value = utf8_text(record.value)
    if record.reply is not None:
        message.reply = utf8_text(record.reply)
    if record.error is not None:
        message.error.CopyFrom(from_error(record.error))


def _to_step(message: history_pb2.Step) -> StepRecord:
    return StepRecord(
        number=message.number,
        parent=message.parent,
        origin=message.origin,
        outcome="reused" if message.reused else "executed",
        kind=_KIND_NAMES[message.kind],
        code=message.code.decode("utf-8", "surrogatepass"),
        names=tuple(message.names),
        content=message.content,
        author=message.author,
        private=message.private,
        cause=message.cause,
        status=_STATUS_NAMES[message.status],
        stdout=message.stdout,
        stderr=message.stderr,
        value=message.value if message.HasField("value") else None,
        outputs=tuple(map(to_bundle, message.outputs)),
        error=read_error(message.error) if message.HasField("error") else None,
        reply=message.reply if message.HasField("reply") else None,
        shed=message.shed,
        trace=messages.read_trace(message.trace) if message.HasField("trace") else None,
        host_calls=tuple(map(_to_call, message.host_calls)),
        dropped_calls=message.dropped_calls,
        started=message.started,
        duration=message.duration,
        timeout=message.timeout,
        atomic=message.atomic,
        kept_as=to_kept_as(message.kept_as),
        usage=to_usage(message.usage),
    )


def _from_call(call: HostCallRecord) -> history_pb2.RecordedHostCall:
    message = make(
        history_pb2.RecordedHostCall,
        target=call.target,
        method=call.method,
        effect=EFFECTS[call.effect],
        digest=call.digest,
        arguments=call.arguments,
        reply=call.reply,
        parts=call.parts,
    )
    if call.error is not None:
        message.error.CopyFrom(from_failure(call.error))
    return message


def _to_call(message: history_pb2.RecordedHostCall) -> HostCallRecord:
    return HostCallRecord(
        target=message.target,
        method=message.method,
        effect=EFFECT_NAMES[message.effect],
        digest=message.digest,
        arguments=message.arguments if message.HasField("arguments") else None,
        reply=message.reply if message.HasField("reply") else None,
        parts=message.parts,
        error=to_failure(message.error) if message.HasField("error") else None,
    )
