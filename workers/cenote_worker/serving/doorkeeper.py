"""Who gets in: each call is asked for its token before anything that it brings is received."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from cenote_security.errors import CenoteError, UnavailableError
from cenote_worker.serving.refusing import refuse

OPEN: Final = frozenset({health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME})
"""Services for anybody: whether the server serves, and what. They know nothing of tenants."""

MAX_STRANGERS: Final = 64
"""Calls of those services at once. They may last for as long as the stranger likes."""

Metadata = Iterable[tuple[str, str | bytes]]
Enter = Callable[[Metadata], Awaitable[None]]
"""Lets a call in by what it says of itself. Raises CenoteError, whose text is for whoever called."""

Context = grpc.aio.ServicerContext[Any, Any]


class Doorkeeper(grpc.aio.ServerInterceptor):
    """Of one server.

    gRPC receives the message of a unary call, and parses it, before the call's handler runs: a stranger could have
    4 MiB parsed, or be waited for. Here only metadata has come. The handler runs in the same task, and finds in its
    context variables what `enter` has set.
    """

    def __init__(self, enter: Enter) -> None:
        self._enter = enter
        self._strangers = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        try:
            if details.method.removeprefix("/").partition("/")[0] in OPEN:
                self._let_a_stranger_in()
            else:
                await self._enter(details.invocation_metadata or ())
        except CenoteError as error:
            return _refusal(error)
        return await continuation(details)

    def _let_a_stranger_in(self) -> None:
        if self._strangers >= MAX_STRANGERS:
            raise UnavailableError(f"{MAX_STRANGERS} others ask this without a token already; try again")
        self._strangers += 1
        task = asyncio.current_task()
        assert task is not None, "gRPC has one for each call"
        task.add_done_callback(self._see_off)

    def _see_off(self, _task: asyncio.Task[Any]) -> None:
        self._strangers -= 1


def _refusal(error: CenoteError) -> grpc.RpcMethodHandler[Any, Any]:
    """Receives nothing: the handler of a stream begins before there is a message."""
    return grpc.stream_stream_rpc_method_handler(partial(_refuse, error))


async def _refuse(error: CenoteError, _frames: object, context: Context) -> None:
    await refuse(context, error)
