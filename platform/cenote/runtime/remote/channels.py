"""Connections to a platform's servers, and what their failures mean."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import grpc

from cenote.runtime.remote.address import AUTHORITY, TOKEN, Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.reconnection import ReturnWaiter, is_known
from cenote.tracing import carried
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security.errors import (
    CenoteError,
    NotAuthenticatedError,
    RejectedError,
    UnavailableError,
    UsageError,
)
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
    # Each channel has connections of its own; what looks the same would share one, and its limit of streams.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # what the environment says of proxies is about the web
)

STREAMS: Final = 64
"""On one connection; servers allow some more. One that is not allowed would wait without a word."""

IDLE: Final = 4
"""Connections without a stream that are kept."""


_TLS_REMEDIES: Final = (
    ("WRONG_VERSION_NUMBER", f"what listens there has no TLS: check the address, or unset {AUTHORITY}"),
    ("CERTIFICATE_VERIFY_FAILED", f"{AUTHORITY} names another authority: take this platform's own ca.pem"),
    ("Socket closed", f"if it has TLS, name its ca.pem in {AUTHORITY}"),
)
"""What a failed attempt to connect says, and what helps."""


_Server = tuple[str, str]
"""Its address, and who vouches for it."""


class Channels:
    """Connections of this process, on the background loop. Those for streams are shared by a bounded number each.

    authority, wait, insists: see Destination. Streams are taken up again by those who have them.
    """

    def __init__(self, authority: str = "", wait: float = 0.0, *, insists: bool = False) -> None:
        self._wait = wait
        self._insists = insists
        self._ending = asyncio.Event()
        self._credentials = tls_credentials(authority) if authority else None
        self._unary: dict[str, grpc.aio.Channel] = {}
        self._streaming: dict[_Server, list[_Connection]] = {}

    def to(self, address: str) -> grpc.aio.Channel:
        """For calls that end soon."""
        if address not in self._unary:
            self._unary[address] = self._channel(
                address, "", (ReturnWaiter(address, self._wait, self._ending, insists=self._insists),)
            )
        return self._unary[address]

    @contextmanager
    def stream(self, address: str, authority: str = "") -> Iterator[grpc.aio.Channel]:
        """For one long stream. authority: PEM of who vouches for this server, if that is not who does for the others.

        The gateway, which is trusted, says so of runtimes' own servers.
        """
        connections = self._streaming.setdefault((address, authority), [])
        connection = next((one for one in connections if one.streams < STREAMS), None)
        if connection is None:
            connection = _Connection(self._channel(address, authority))
            connections.append(connection)
        connection.streams += 1
        try:
            yield connection.channel
        finally:
            connection.streams -= 1
            self._thin_out()

    def _channel(
        self, address: str, authority: str, interceptors: Sequence[ReturnWaiter] = ()
    ) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(authority.encode()) if authority else self._credentials
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=OPTIONS, interceptors=interceptors)
        return grpc.aio.secure_channel(address, credentials, options=OPTIONS, interceptors=interceptors)

    def stop_waiting(self) -> None:
        """No call waits any more for a server that does not answer: the process ends."""
        self._ending.set()

    async def close(self) -> None:
        connections = [one.channel for some in self._streaming.values() for one in some]
        channels = [*self._unary.values(), *connections]
        self._unary, self._streaming = {}, {}
        await asyncio.gather(*(channel.close() for channel in channels))

    def _thin_out(self) -> None:
        """Keeps some idle connections: runtimes come and go, often at the same few addresses."""
        idle = [(server, one) for server, some in self._streaming.items() for one in some if not one.streams]
        for server, connection in idle[:-IDLE]:
            self._streaming[server].remove(connection)
            if not self._streaming[server]:
                del self._streaming[server]
            background().spawn(connection.channel.close())


@dataclass(slots=True, eq=False)
class _Connection:
    channel: grpc.aio.Channel
    streams: int = 0


def tls_credentials(authority: str) -> grpc.ChannelCredentials:
    """For servers that the authority in that file vouches for. Raises UsageError when it cannot be read."""
    try:
        return grpc.ssl_channel_credentials(Path(authority).read_bytes())
    except OSError as error:
        raise UsageError(
            f"the authority's certificate {authority!r} cannot be read: {error.strerror}"
        ) from None


def authorization(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata that a call goes with: the token, and the trace that it is part of."""
    own = (("authorization", f"Bearer {token}"),) if token else ()
    return (*own, *carried().items())


async def asked(call: Awaitable[Answer], destination: Destination) -> Answer:
    """The answer to a unary call. Raises what its failure means."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise meaning(error, destination.address, token=destination.token) from None


def meaning(
    error: grpc.aio.AioRpcError, address: str, *, token: str | None = None, known: bool = False
) -> CenoteError:
    """What a failed call means to its caller. token: that it was made with, empty for none.

    known: a platform is, or was, there for sure.
    """
    sent = _failure(error)
    if isinstance(sent, NotAuthenticatedError) and token == "":
        return NotAuthenticatedError(
            f"no token is known here; set {TOKEN}, or be the user who ran `cenote up`"
        )
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
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return UnavailableError(
                f"no answer from {address} in time: a platform there has too much to do, or waits for a process of "
                f"its own that is at a standstill and is replaced within half a minute; or there is no platform. Try "
                f"again then, or check the address"
            )
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            remedy = _remedy(detail, known=known or is_known(address))
            return UnavailableError(f"no platform answers at {address} ({detail}); {remedy}")
    return UnavailableError(f"the platform at {address} failed: {detail}")


def _remedy(detail: str, *, known: bool) -> str:
    """gRPC has one status for a port without a listener and for one whose listener speaks another protocol."""
    if "failed to connect" in detail:
        for sign, remedy in _TLS_REMEDIES:
            if sign in detail:
                return remedy
    if known:
        return "check the address, and see there whether it runs; clients try again, for as long as CENOTE_WAIT says"
    return "start one with `cenote up`, or check the address"


def _failure(error: grpc.aio.AioRpcError) -> CenoteError | None:
    for key, value in error.trailing_metadata() or ():
        if key == METADATA and isinstance(value, bytes):
            return to_error(Failure.FromString(value))
    return None


def new_key() -> str:
    """A key for a call that changes something: no other client can guess it."""
    return secrets.token_hex(16)
