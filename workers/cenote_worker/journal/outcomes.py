"""Outcomes of requests with a key, as entries of a journal and back."""

from __future__ import annotations

from typing import assert_never

from cenote_proto.v1 import jail_pb2, journal_pb2
from cenote_security.errors import JailLostError, UnavailableError
from cenote_worker.results import ExecutionResult
from cenote_worker.supervisor import edge
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.wire.results import from_result, to_result


def to_entry(key: str, outcome: Outcome) -> journal_pb2.Settled:
    """Only what changes something has a key: its outcome is a result, done, refused, or an error."""
    settled = journal_pb2.Settled(key=key)
    match outcome:
        case ExecutionResult():
            settled.result.CopyFrom(from_result(outcome))
        case edge.DoneReply():
            settled.done.SetInParent()
        case edge.RefusedReply():
            settled.refusal.CopyFrom(_refusal(outcome))
        case UnavailableError():
            settled.nothing_ran = True
        case JailLostError():
            settled.lost = outcome.reason
        case _:
            settled.lost = str(outcome)
    return settled


def from_entry(settled: journal_pb2.Settled) -> Outcome:
    """The outcome of an entry that has one."""
    match settled.WhichOneof("outcome"):
        case "result":
            return to_result(settled.result)
        case "done":
            return edge.DoneReply()
        case "refusal":
            refusal = settled.refusal
            nearest = tuple(refusal.nearest)
            return edge.RefusedReply(refusal.kind, refusal.name, refusal.message, nearest)
        case "lost":
            return JailLostError(settled.lost)
        case "nothing_ran" | None:
            raise ValueError("an entry without an outcome")
        case other:
            assert_never(other)


def _refusal(refused: edge.RefusedReply) -> jail_pb2.Refusal:
    message = jail_pb2.Refusal(name=refused.name, message=refused.message, nearest=refused.nearest)
    if refused.kind in jail_pb2.Refusal.Kind.values():  # it is a jail's word
        message.kind = jail_pb2.Refusal.Kind.ValueType(refused.kind)
    return message
