"""Connections to a platform's servers, and what their failures mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, TypeVar

import grpc

from cenote.runtime.remote.address import Destination
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security.errors import CenoteError, RejectedError, UnavailableError, UsageError
from cenote_worker.wire.channels import CLIENT
from cenote_worker.wire.failures import METADATA, to_error

Answer = TypeVar("Answer")

DEADLINE: Final = 30.0
"""Seconds for a question to the gateway; making a runtime takes the longest, with a cold zygote a second or two."""

OPTIONS: Final = (
    *CLIENT,
    # A server that comes back is tried at once, not after gRPC's own minutes of patience.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

FINAL: Final = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.ALREADY_EXISTS,
    }
)
"""Trying again would give the same answer."""


class Channels:
    """One connection per address, on the background loop. authority: see Destination."""

    def __init__(self, authority: str = "") -> None:
        self._credentials = tls_credentials(authority) if authority else None
        self._open: dict[str, grpc.aio.Channel] = {}

    def to(self, address: str) -> grpc.aio.Channel:
        if address not in self._open:
            self._open[address] = self._channel(address)
        return self._open[address]

    def _channel(self, address: str) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=OPTIONS)
        return grpc.aio.secure_channel(address, self._credentials, options=OPTIONS)

    async def close(self) -> None:
        channels, self._open = list(self._open.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels))


def tls_credentials(authority: str) -> grpc.ChannelCredentials:
    """For servers that the authority in that file vouches for. Raises UsageError when it cannot be read."""
    try:
        return grpc.ssl_channel_credentials(Path(authority).read_bytes())
    except OSError as error:
        raise UsageError(
            f"the authority's certificate {authority!r} cannot be read: {error.strerror}"
        ) from None


def authorization(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata that a call goes with."""
    return (("authorization", f"Bearer {token}"),) if token else ()


async def asked(call: Awaitable[Answer], destination: Destination) -> Answer:
    """The answer to a unary call. Raises what its failure means."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise meaning(error, destination.address) from None


def meaning(error: grpc.aio.AioRpcError, address: str) -> CenoteError:
    """What a failed call means to whoever made it."""
    sent = _failure(error)
    if sent is not None:
        return sent
    detail = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return RejectedError(
                f"the platform at {address} refuses the token ({detail}); "
                f"pass token=..., set CENOTE_TOKEN, or run `cenote up` as this user"
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return UsageError(
                f"what answers at {address} is not a Cenote platform, or another version of it ({detail})"
            )
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
            return UnavailableError(
                f"no platform answers at {address} ({detail}); start one with `cenote up`, or check the address"
            )
    return UnavailableError(f"the platform at {address} failed: {detail}")


def _failure(error: grpc.aio.AioRpcError) -> CenoteError | None:
    for key, value in error.trailing_metadata() or ():
        if key == METADATA and isinstance(value, bytes):
            return to_error(Failure.FromString(value))
    return None
