"""Copies of the state of a runtime on a platform: branches, which are made next to the jail, and stored states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from cenote.runtime.core.backend import Backend, ServedBranch
from cenote.runtime.inject.host_function_server import HostFunctionServer
from cenote.runtime.remote.channels import new_key
from cenote.runtime.remote.platform_client import PlatformClient
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import platform_pb2, runtime_pb2
from cenote_security.errors import JailError, UnavailableError, UsageError
from cenote_worker.checkpoints.store import CheckpointInfo
from cenote_worker.runtime.snapshots import check_label, check_target
from cenote_worker.runtime.state.branches import ForkOrder, ForkPoint
from cenote_worker.wire.replies import to_checkpoint

OpenThere = Callable[[platform_pb2.RuntimeDescription, HostFunctionServer], Backend]

_TRIES: Final = 3
"""With one key: what an earlier one has made is given back."""

_PAUSE: Final = 0.5


async def forked(
    client: PlatformClient, request: platform_pb2.ForkRuntimeRequest
) -> list[platform_pb2.RuntimeDescription]:
    """The branches, which are asked for again where the line broke or the machine had no time."""
    for _ in range(_TRIES - 1):
        try:
            return await client.fork(request)
        except UnavailableError:
            await asyncio.sleep(_PAUSE)
    return await client.fork(request)


def fork_request(
    runtime: str, order: ForkOrder, count: int, names: Sequence[str], *, lease: float
) -> platform_pb2.ForkRuntimeRequest:
    """names: none, to have the platform give them. lease: seconds without a client until they end; 0 for ever."""
    request = make(
        platform_pb2.ForkRuntimeRequest,
        name=runtime,
        count=count,
        key=new_key(),
        names=names,
        lease=lease,
        deterministic=order.deterministic,
        partial=order.partial,
    )
    if isinstance(order.at, str):
        request.label = utf8_text(order.at)
    elif order.at is not None:
        request.step = order.at
    return request


def point_of(described: platform_pb2.RuntimeDescription) -> ForkPoint | None:
    """Where it was forked, if it was."""
    if not described.origin.history:
        return None
    return ForkPoint(history=described.origin.history, step=described.origin.step)


def branch_there(open_there: OpenThere, described: platform_pb2.RuntimeDescription) -> ServedBranch:
    """open_there: gives the way to what is described."""
    point = point_of(described) or ForkPoint(history="", step=0)
    return ServedBranch(name=described.name, point=point, open=partial(open_there, described))


STORE: Final = 600.0
"""Seconds for a state to be stored: as long as a jail may take over a copy of it."""

Ask = Callable[[runtime_pb2.ClientFrame, str, float], runtime_pb2.ServerFrame]
"""The answer to a frame. What the platform is to do, for errors; seconds for it."""


class RemoteCheckpoints:
    """See CheckpointClient."""

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
