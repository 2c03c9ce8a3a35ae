"""Branches of a runtime on a platform: asked of the gateway, made next to the jail, held from here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from cenote.runtime.backend import Backend
from cenote.runtime.branch_line import BranchThere
from cenote.runtime.host_desk import HostDesk
from cenote.runtime.remote.call import new_key
from cenote.runtime.remote.platform_client import PlatformClient
from cenote_proto.scalars import make, utf8_text
from cenote_proto.v1 import platform_pb2
from cenote_security.errors import UnavailableError
from cenote_worker.hosted.branching import ForkOrder, ForkPoint

OpenThere = Callable[[platform_pb2.RuntimeDescription, HostDesk], Backend]

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


def branch_there(open_there: OpenThere, described: platform_pb2.RuntimeDescription) -> BranchThere:
    """open_there: gives the way to what is described."""
    point = point_of(described) or ForkPoint(history="", step=0)
    return BranchThere(name=described.name, point=point, open=partial(open_there, described))
