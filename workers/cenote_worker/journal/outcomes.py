"""Outcomes of requests with a key, as entries of a journal and back."""

from __future__ import annotations

from typing import assert_never

from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import jail_pb2, journal_pb2
from cenote_security.errors import CallTimeoutError, JailLostError, NotKeptError, UnavailableError
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.results import Built, ExecutionResult, Patched, Rollback
from cenote_worker.supervisor import edge
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.wire.builds import from_built, to_built
from cenote_worker.wire.patches import from_patched, to_patched
from cenote_worker.wire.results import from_result, to_result
from cenote_worker.wire.snapshots import from_rollback, to_rollback


def to_entry(key: str, outcome: Outcome) -> journal_pb2.Settled:
    """Only what changes something, or keeps it, has a key."""
    settled = make(journal_pb2.Settled, key=key)
    match outcome:
        case ExecutionResult():
            settled.result.CopyFrom(from_result(outcome))
        case edge.DoneReply():
            settled.done.SetInParent()
        case edge.RefusedReply():
            settled.refusal.CopyFrom(_refusal(outcome))
        case edge.KeptReply():
            settled.kept = outcome.step
        case Patched():
            settled.applied.CopyFrom(from_patched(outcome))
        case Built():
            settled.built.CopyFrom(from_built(outcome))
        case Rollback():
            settled.rolled_back.CopyFrom(from_rollback(outcome))
        case NotKeptError(target=str(label)):
            settled.no_such_label = utf8_text(label)
        case NotKeptError(target=int(step)):
            settled.no_such_step = step
        case UnavailableError():
            settled.nothing_ran = True
        case CallTimeoutError():
            settled.refusal.message = utf8_text(str(outcome))
        case JailLostError():
            settled.lost = utf8_text(outcome.reason)
        case NotDurableError():
            settled = to_entry(key, _carried_out(outcome))
            settled.not_durable = utf8_text(outcome.reason)
        case _:
            settled.lost = utf8_text(str(outcome))
    return settled


def from_entry(settled: journal_pb2.Settled) -> Outcome:
    """The outcome of an entry that has one."""
    outcome = _given(settled)
    if not settled.not_durable:
        return outcome
    return NotDurableError(None if isinstance(outcome, edge.DoneReply) else outcome, settled.not_durable)


def _given(settled: journal_pb2.Settled) -> Outcome:
    match settled.WhichOneof("outcome"):
        case "result":
            return to_result(settled.result)
        case "done":
            return edge.DoneReply()
        case "refusal":
            refusal = settled.refusal
            nearest = tuple(refusal.nearest)
            return edge.RefusedReply(refusal.kind, refusal.name, refusal.message, nearest)
        case "kept":
            return edge.KeptReply(settled.kept)
        case "rolled_back":
            return to_rollback(settled.rolled_back)
        case "applied":
            return to_patched(settled.applied)
        case "built":
            return to_built(settled.built)
        case "no_such_step":
            return NotKeptError(settled.no_such_step)
        case "no_such_label":
            return NotKeptError(settled.no_such_label)
        case "lost":
            return JailLostError(settled.lost)
        case "nothing_ran" | None:
            raise ValueError("an entry without an outcome")
        case other:
            assert_never(other)


def _refusal(refused: edge.RefusedReply) -> jail_pb2.Refusal:
    message = make(jail_pb2.Refusal, name=refused.name, message=refused.message, nearest=refused.nearest)
    if refused.kind in jail_pb2.Refusal.Kind.values():  # it is a jail's word
        message.kind = jail_pb2.Refusal.Kind.ValueType(refused.kind)
    return message


def _carried_out(error: NotDurableError) -> Outcome:
    """What the call gave that could not be made durable."""
    match error.outcome:
        case ExecutionResult() | Rollback() | Patched() | Built() as given:
            return given
    return edge.DoneReply()
