"""Patches as messages and back: what came of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_security.printable import printable
from cenote_worker.results import Patched, PatchRefusal, PatchStatus, UnmadeCall

MAX_FACTS: Final = 10_000
"""Characters of all facts of a refusal together: they become part of an error's text."""

_STATUSES: Final[Mapping[PatchStatus, runtime_pb2.Applied.Status.ValueType]] = {
    "applied": runtime_pb2.Applied.APPLIED,
    "failed": runtime_pb2.Applied.FAILED,
    "blocked": runtime_pb2.Applied.BLOCKED,
    "cancelled": runtime_pb2.Applied.CANCELLED,
    "refused": runtime_pb2.Applied.REFUSED,
}
_STATUS_NAMES: Final = {number: name for name, number in _STATUSES.items()}


def from_patched(patched: Patched) -> runtime_pb2.Applied:
    message = make(
        runtime_pb2.Applied,
        status=_STATUSES[patched.status],
        head=patched.head,
        rerun=patched.rerun,
        reused=patched.reused,
        changed=patched.changed,
        cut_offs=patched.cut_offs,
        seconds_saved=patched.seconds_saved,
        records=patched.records,
        failure=patched.failure,
        aside=patched.aside,
        notes=patched.notes,
    )
    if (call := patched.blocked) is not None:
        unmade = make(
            runtime_pb2.UnmadeCall, target=call.target, method=call.method, arguments=call.arguments
        )
        message.blocked.CopyFrom(unmade)
    if patched.refusal is not None:
        message.refusal.CopyFrom(from_refusal(patched.refusal))
    return message


def to_patched(message: runtime_pb2.Applied) -> Patched:
    return Patched(
        status=_STATUS_NAMES.get(message.status, "refused"),
        head=message.head,
        rerun=tuple(message.rerun),
        reused=tuple(message.reused),
        changed=tuple(message.changed),
        cut_offs=tuple(message.cut_offs),
        seconds_saved=message.seconds_saved,
        records=tuple(message.records),
        failure=message.failure,
        blocked=_unmade(message.blocked) if message.HasField("blocked") else None,
        aside=message.aside,
        refusal=to_refusal(message.refusal) if message.HasField("refusal") else None,
        notes=tuple(printable(note[:MAX_FACTS]) for note in message.notes),
    )


def _unmade(message: runtime_pb2.UnmadeCall) -> UnmadeCall:
    return UnmadeCall(target=message.target, method=message.method, arguments=message.arguments)


def from_refusal(refusal: PatchRefusal) -> runtime_pb2.PatchRefusal:
    facts = [json.dumps(fact) for fact in refusal.facts]
    return make(runtime_pb2.PatchRefusal, kind=refusal.kind, facts=facts, message=refusal.message)


def to_refusal(message: runtime_pb2.PatchRefusal) -> PatchRefusal:
    """One whose facts cannot be read is of no known kind."""
    try:
        if sum(map(len, message.facts)) > MAX_FACTS:
            raise ValueError
        facts = tuple(json.loads(fact) for fact in message.facts)
    except (ValueError, RecursionError):
        return PatchRefusal(kind="", facts=(), message=printable(message.message[:MAX_FACTS]))
    return PatchRefusal(kind=message.kind, facts=facts, message=printable(message.message[:MAX_FACTS]))
