"""States of a runtime on a platform, stored there when its client says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cenote_proto.scalars import make
from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import JailError, UsageError
from cenote_worker.checkpoints.store import CheckpointInfo
from cenote_worker.hosted.snapshots import check_label, check_target
from cenote_worker.wire.checkpoints import to_checkpoint

STORE: Final = 600.0
"""Seconds for a state to be stored: as long as a jail may take over a copy of it."""

Ask = Callable[[runtime_pb2.ClientFrame, str, float], runtime_pb2.ServerFrame]
"""The answer to a frame. What the platform is to do, for errors; seconds for it."""


class RemoteCheckpoints:
    """See CheckpointLine."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def make(self, label: str = "") -> CheckpointInfo:
        check_label(label)
        return self._stored(runtime_pb2.ClientFrame(store_state=make(runtime_pb2.StoreState, label=label)))

    def hibernate(self, *, partial: bool) -> CheckpointInfo:
        if partial:
            raise UsageError("a runtime of a platform sleeps whole, or not at all; leave out `partial`")
        return self._stored(runtime_pb2.ClientFrame(hibernate=runtime_pb2.Hibernate()))

    def go_back(self, checkpoint: int | str) -> CheckpointInfo:
        """Goes on from a stored state, by number or label. Raises UnknownEntryError, IncompleteRestoreError."""
        check_target(checkpoint)
        if isinstance(checkpoint, str):
            to = make(runtime_pb2.GoBackTo, label=checkpoint)
        else:
            to = runtime_pb2.GoBackTo(number=checkpoint)
        return self._stored(runtime_pb2.ClientFrame(go_back_to=to))

    def _stored(self, frame: runtime_pb2.ClientFrame) -> CheckpointInfo:
        answer = self._ask(frame, "store the state", STORE)
        if not answer.HasField("state_stored"):
            raise JailError("the platform did not say what it has stored")
        return to_checkpoint(answer.state_stored)
