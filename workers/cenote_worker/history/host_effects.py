"""What host functions do to the world, as their clients have declared it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_worker.history.step import HostEffect

EFFECTS: Final[Mapping[HostEffect, jail_pb2.HostTarget.Effect.ValueType]] = {
    "external": jail_pb2.HostTarget.EXTERNAL,
    "idempotent": jail_pb2.HostTarget.IDEMPOTENT,
    "pure": jail_pb2.HostTarget.PURE,
}
EFFECT_NAMES: Final = {number: effect for effect, number in EFFECTS.items()}
