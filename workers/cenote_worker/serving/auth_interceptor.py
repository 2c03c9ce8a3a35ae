"""Authentication of gRPC calls: the token is checked before any message of the call is received.

A call that fails as a whole ends with a status for any gRPC client, and with the failure itself for ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from cenote_proto.scalars import make
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security.errors import CenoteError, UnavailableError, UsageError
from cenote_worker.wire.failures import METADATA, status_of, to_failure

MAX_METADATA = 4 << 10
"""Bytes. A peer accepts 8 KiB of metadata by default; with more the call fails without a reason."""

MAX_DETAILS = 500
"""Characters of the status text, which is sent percent-encoded."""


async def refuse(context: grpc.aio.ServicerContext[Any, Any], error: CenoteError) -> NoReturn:
    """Ends the call."""
    failure = to_failure(error)
    if failure.ByteSize() > MAX_METADATA:
        failure = make(Failure, message=failure.message[: MAX_METADATA // 4])
    try:
        await context.abort(
            status_of(error), str(error)[:MAX_DETAILS], ((METADATA, failure.SerializeToString()),)
        )
    except grpc.aio.InternalError:  # the peer has hung up, and receives no status any more
        raise asyncio.CancelledError from None


OPEN: Final = frozenset({health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME})
"""Services that need no token: whether the server serves, and what. They know nothing of tenants."""

MAX_STRANGERS: Final = 64
"""Streams of those services at once. An unauthenticated client may keep one open without limit. Calls that are
answered at once are not counted: held streams must not keep other clients from checking the server's health.
"""

HURRY: Final = 10.0
"""Seconds for an unauthenticated client to send the message of such a call."""

Metadata = Iterable[tuple[str, str | bytes]]
Enter = Callable[[Metadata], Awaitable[None]]
"""Admits a call by its metadata. Raises CenoteError, whose text is for the caller."""

Context = grpc.aio.ServicerContext[Any, Any]


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """The interceptor of one server.

    gRPC receives and parses the message of a unary call before the call's handler runs: an unauthenticated client
    could have 4 MiB parsed, or keep the server waiting. Here only metadata has arrived. The handler runs in the same
    task, and sees the context variables that `enter` has set.
    """

    def __init__(self, enter: Enter, hurry: float = HURRY, more: Collection[str] = ()) -> None:
        """more: calls that need no token besides those of OPEN, as `/package.Service/Method`."""
        self._enter = enter
        self._more = frozenset(more)
        self._hurry = hurry
        self._strangers = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        try:
            method = details.method
            if method in self._more or method.removeprefix("/").partition("/")[0] in OPEN:
                return self._for_strangers(await continuation(details))
            await self._enter(details.invocation_metadata or ())
        except CenoteError as error:
            return _refusal(error)
        return await continuation(details)

    def _for_strangers(
        self, handler: grpc.RpcMethodHandler[Any, Any] | None
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        if handler is None:
            return None
        if handler.unary_unary is not None:
            return _hurried(handler, handler.unary_unary, self._hurry)
        self._let_a_stranger_in()
        return handler

    def _let_a_stranger_in(self) -> None:
        if self._strangers >= MAX_STRANGERS:
            raise UnavailableError(f"{MAX_STRANGERS} others ask this without a token already; try again")
        self._strangers += 1
        task = asyncio.current_task()
        assert task is not None, "gRPC has one for each call"
        task.add_done_callback(self._see_off)

    def _see_off(self, _task: asyncio.Task[Any]) -> None:
        self._strangers -= 1


def _hurried(
    handler: grpc.RpcMethodHandler[Any, Any], ask: Callable[[Any, Any], Any], patience: float
) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler as one of a stream with one message: gRPC would wait for a unary call's message for ever."""

    async def answer(_frames: object, context: Context) -> None:
        try:
            async with asyncio.timeout(patience):
                request = await context.read()
        except TimeoutError:
            await refuse(context, UnavailableError(f"no message within {patience:g} s"))
        except DecodeError:  # otherwise it fills the log
            await refuse(context, UsageError("a message that is none of this call's"))
        if request is not grpc.aio.EOF:
            await context.write(await ask(request, context))

    return grpc.stream_stream_rpc_method_handler(
        answer, handler.request_deserializer, handler.response_serializer
    )


def _refusal(error: CenoteError) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler that refuses without receiving: the handler of a stream begins before there is a message."""
    return grpc.stream_stream_rpc_method_handler(partial(_refuse, error))


async def _refuse(error: CenoteError, _frames: object, context: Context) -> None:
    await refuse(context, error)
