"""What may be said of a checkpoint, as a message and back."""

from __future__ import annotations

from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_worker.checkpoints.store import CheckpointInfo


def from_checkpoint(made: CheckpointInfo) -> runtime_pb2.StateStored:
    return make(
        runtime_pb2.StateStored,
        number=made.number,
        label=made.label,
        step=made.step,
        made=made.made,
        size=made.size,
        stored=made.stored,
        complete=made.complete,
    )


def to_checkpoint(message: runtime_pb2.StateStored) -> CheckpointInfo:
    return CheckpointInfo(
        number=message.number,
        label=message.label,
        step=message.step,
        made=message.made,
        size=message.size,
        stored=message.stored,
        complete=message.complete,
    )
