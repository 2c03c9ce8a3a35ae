"""How a call as a whole fails: a status for every gRPC client, and the failure itself for ours."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import grpc.aio

from cenote_proto.scalars import make
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security.errors import CenoteError
from cenote_worker.wire.failures import METADATA, status_of, to_failure

MAX_METADATA = 4 << 10
"""Bytes. A peer takes 8 KiB of metadata by default, or the call fails without a word."""

MAX_DETAILS = 500
"""Characters of the status's own text, which travels percent-encoded."""


async def refuse(context: grpc.aio.ServicerContext[Any, Any], error: CenoteError) -> NoReturn:
    """Ends the call."""
    failure = to_failure(error)
    if failure.ByteSize() > MAX_METADATA:
        failure = make(Failure, message=failure.message[: MAX_METADATA // 4])
    try:
        await context.abort(
            status_of(error), str(error)[:MAX_DETAILS], ((METADATA, failure.SerializeToString()),)
        )
    except grpc.aio.InternalError:  # its peer has hung up, and hears no status any more
        raise asyncio.CancelledError from None
