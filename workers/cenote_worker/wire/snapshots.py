"""What is kept of a runtime, and what going back to it gave, as messages and back."""

from __future__ import annotations

from collections.abc import Iterable

from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_worker.results import Rollback, SnapshotInfo


def from_rollback(rollback: Rollback) -> runtime_pb2.RolledBack:
    return make(
        runtime_pb2.RolledBack,
        step=rollback.step,
        severed=rollback.severed,
        unkept=rollback.unkept,
        amiss=rollback.amiss,
    )


def to_rollback(message: runtime_pb2.RolledBack) -> Rollback:
    return Rollback(
        step=message.step,
        severed=tuple(message.severed),
        unkept=message.unkept,
        amiss=tuple(message.amiss),
    )


def from_snapshots(kept: Iterable[SnapshotInfo]) -> runtime_pb2.Snapshots:
    states = [make(runtime_pb2.KeptState, step=one.step, label=one.label, memory=one.memory) for one in kept]
    return runtime_pb2.Snapshots(states=states)


def to_snapshots(message: runtime_pb2.Snapshots) -> tuple[SnapshotInfo, ...]:
    return tuple(SnapshotInfo(step=one.step, label=one.label, memory=one.memory) for one in message.states)
