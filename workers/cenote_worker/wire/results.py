"""A runtime's results as messages, and back: results of cells, status, decisions of its proxy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_worker.egress.ledger import Decision, Kind
from cenote_worker.execution import messages
from cenote_worker.execution.messages import fill_error, fill_variable
from cenote_worker.execution.results import (
    CellUsage,
    ErrorInfo,
    ExecutionResult,
    JailStatus,
    LiveOutput,
    MimeBundle,
    Notice,
    StateAfter,
    VariableInfo,
    to_kept_as,
)
from cenote_worker.supervisor.frame_parser import read_error

_STATES: Final[Mapping[StateAfter, runtime_pb2.CellResult.State.ValueType]] = {
    "kept": runtime_pb2.CellResult.KEPT,
    "rolled_back": runtime_pb2.CellResult.ROLLED_BACK,
    "lost": runtime_pb2.CellResult.LOST,
}
_STATE_NAMES: Final = {number: name for name, number in _STATES.items()}
_DECISION_KINDS: Final[Mapping[str, Kind]] = {"tunnel": "tunnel", "http": "http"}


def from_result(result: ExecutionResult) -> runtime_pb2.CellResult:
    message = make(
        runtime_pb2.CellResult,
        success=result.success,
        stdout=result.stdout,
        stderr=result.stderr,
        outputs=map(from_bundle, result.outputs),
        step=result.step,
        duration=result.duration,
        state=_STATES[result.state],
        truncated=result.truncated,
        author=result.author,
        notices=map(_from_notice, result.notices),
        unkept=result.unkept,
        kept_as=result.kept_as,
        back_at=result.back_at,
        news=result.news,
        printed_in_turns=result.printed_in_turns,
    )
    if result.value is not None:
        message.value = utf8_text(result.value)
    if result.reply is not None:
        message.reply = utf8_text(result.reply)
    if result.error is not None:
        message.error.CopyFrom(from_error(result.error))
    if result.trace is not None:
        messages.fill_trace(message.trace, result.trace)
    message.usage.CopyFrom(from_usage(result.usage))
    return message


def to_result(message: runtime_pb2.CellResult) -> ExecutionResult:
    return ExecutionResult(
        success=message.success,
        stdout=message.stdout,
        stderr=message.stderr,
        value=message.value if message.HasField("value") else None,
        outputs=tuple(map(to_bundle, message.outputs)),
        error=read_error(message.error) if message.HasField("error") else None,
        step=message.step,
        duration=message.duration,
        state=_STATE_NAMES.get(message.state, "lost"),
        truncated=message.truncated,
        reply=message.reply if message.HasField("reply") else None,
        usage=to_usage(message.usage),
        trace=messages.read_trace(message.trace) if message.HasField("trace") else None,
        author=message.author,
        notices=tuple(map(_to_notice, message.notices)),
        unkept=message.unkept,
        kept_as=to_kept_as(message.kept_as),
        back_at=message.back_at if message.HasField("back_at") else None,
        news=tuple(message.news),
        printed_in_turns=tuple(message.printed_in_turns),
    )


def from_status(status: JailStatus) -> runtime_pb2.Status:
    return make(
        runtime_pb2.Status,
        memory=status.memory,
        processes=status.processes,
        step=status.step or 0,
        isolation=status.isolation,
        limits=status.limits,
        author=status.author,
    )


def to_status(message: runtime_pb2.Status) -> JailStatus:
    return JailStatus(
        memory=message.memory,
        processes=message.processes,
        step=message.step or None,
        isolation=message.isolation,
        limits=message.limits,
        author=message.author,
    )


def from_live_output(found: LiveOutput) -> runtime_pb2.Status:
    status = make(runtime_pb2.Status, step=found.step or 0, author=found.author)
    live = status.live_output
    live.missed, live.end = found.missed, found.end
    position = found.end - sum(len(text) for _, text in found.pieces)
    for stream, text in found.pieces:
        position += len(text)
        make(live.pieces.add, is_stderr=stream == "stderr", text=text, position=position)
    return status


def to_live_output(message: runtime_pb2.Status) -> LiveOutput:
    live = message.live_output
    return LiveOutput(
        step=message.step or None,
        author=message.author,
        pieces=tuple(("stderr" if each.is_stderr else "stdout", each.text) for each in live.pieces),
        missed=live.missed,
        end=live.end,
    )


def from_decisions(decisions: Iterable[Decision]) -> runtime_pb2.NetworkLog:
    log = runtime_pb2.NetworkLog()
    for one in decisions:
        make(
            log.decisions.add,
            at=one.at,
            kind=one.kind,
            host=one.host,
            port=one.port,
            address=one.address,
            allowed=one.allowed,
            reason=one.reason,
        )
    return log


def to_decisions(log: runtime_pb2.NetworkLog) -> tuple[Decision, ...]:
    return tuple(
        Decision(
            at=one.at,
            kind=_DECISION_KINDS.get(one.kind, "unread"),
            host=one.host,
            port=one.port,
            address=one.address,
            allowed=one.allowed,
            reason=one.reason,
        )
        for one in log.decisions
    )


def from_info(info: VariableInfo) -> jail_pb2.VariableInfo:
    message = jail_pb2.VariableInfo()
    fill_variable(message, info)
    return message


def from_usage(usage: CellUsage) -> runtime_pb2.Usage:
    return runtime_pb2.Usage(
        wall=usage.wall,
        cpu=usage.cpu,
        peak_memory=usage.peak_memory,
        bytes_written=usage.bytes_written,
        output_bytes=usage.output_bytes,
    )


def to_usage(message: runtime_pb2.Usage) -> CellUsage:
    return CellUsage(
        wall=message.wall,
        cpu=message.cpu,
        peak_memory=message.peak_memory,
        bytes_written=message.bytes_written,
        output_bytes=message.output_bytes,
    )


def from_bundle(bundle: MimeBundle) -> runtime_pb2.MimeBundle:
    message = runtime_pb2.MimeBundle()
    for mime, content in bundle.items():
        part = make(message.parts.add, type=mime)
        if isinstance(content, str):
            part.text = utf8_text(content)
        else:
            part.data = content
    return message


def to_bundle(message: runtime_pb2.MimeBundle) -> MimeBundle:
    return {
        part.type: part.text if part.WhichOneof("content") == "text" else part.data for part in message.parts
    }


def _from_notice(notice: Notice) -> jail_pb2.Notice:
    return make(
        jail_pb2.Notice,
        name=notice.name,
        author=notice.author,
        step=notice.step,
        deleted=notice.deleted,
    )


def _to_notice(message: jail_pb2.Notice) -> Notice:
    return Notice(name=message.name, author=message.author, step=message.step, deleted=message.deleted)


def from_error(error: ErrorInfo) -> jail_pb2.CellError:
    message = jail_pb2.CellError()
    fill_error(message, error)
    return message
