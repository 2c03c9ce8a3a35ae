"""A gRPC server with its own thread and event loop, with health and reflection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from cenote_security.errors import UnavailableError
from cenote_security.loopback import host_of
from cenote_worker.serving.auth_interceptor import AuthInterceptor, Enter
from cenote_worker.supervisor.jail_count_limit import room_for_connections
from cenote_worker.wire import channels

LINGER: Final = 1.0
"""Seconds that the loop outlives its server. gRPC delivers late events of cut streams, and where it meets a closed
loop it drops the events of all other loops of the process as well."""

HANDSHAKE: Final = 15.0
"""Seconds for a peer to begin to speak gRPC, over TLS where it is used: otherwise its descriptor would be held for
two minutes for nothing."""

Fill = Callable[[grpc.aio.Server], Awaitable[Sequence[str]]]
"""Adds services to a server before it starts; gives their full names."""

T = TypeVar("T")


class ServerThread:
    """A server on its own thread. Its creator adds the services and closes it.

    loop: where it serves. pool: threads for blocking calls. opened: on the loop, what is closed with the server:
    after it if pushed before the start, otherwise before it. health: the status for gRPC's own tools.
    """

    def __init__(
        self,
        name: str,
        listen: str,
        credentials: grpc.ServerCredentials | None,
        *,
        threads: int,
        most_calls: int,
        patience: float,
        handshake: float = HANDSHAKE,
    ) -> None:
        """name: of its threads. listen: `host:port`, port 0 for any that is free, or `unix:PATH`.

        credentials: for TLS. most_calls: streams and calls at once; also connections at each address, at most half of
        this process's descriptors: any peer could otherwise use up all of them without authenticating.
        patience: seconds for which streams go on at the end. handshake: see HANDSHAKE.
        """
        self._listen = listen
        self._credentials = credentials
        self._most_calls = most_calls
        self._patience = patience
        self._handshake = handshake
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.loop = asyncio.new_event_loop()
        self.opened = AsyncExitStack()
        self.health = health.HealthServicer()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closed = False

    def start(self, fill: Fill, enter: Enter, open_calls: Collection[str] = ()) -> str:
        """Starts serving. Gives the address that clients connect to. open_calls: see AuthInterceptor.

        Raises UnavailableError where the address is not available.
        """
        self._thread.start()
        try:
            return self.carry_out(self._open(fill, AuthInterceptor(enter, more=open_calls)))
        except BaseException:
            self.close()
            raise

    @property
    def serving(self) -> bool:
        return self._thread.is_alive() and not self._closed

    def carry_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work on the loop. Called on any other thread, which waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        """Ends all streams, and cancels work for them that no thread has begun; the loop's thread ends soon after.

        Closing twice is fine.
        """
        if not self.serving:
            return
        self.carry_out(self.opened.aclose())
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.call_later, LINGER, self.loop.stop)
        self.pool.shutdown(cancel_futures=True)

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    async def _open(self, fill: Fill, door: AuthInterceptor) -> str:
        options = (
            *channels.SERVER,
            ("grpc.max_allowed_incoming_connections", room_for_connections(self._most_calls)),
            ("grpc.server_handshake_timeout_ms", int(self._handshake * 1000)),
        )
        server = grpc.aio.server(
            interceptors=(door,), options=options, maximum_concurrent_rpcs=self._most_calls
        )
        await _describe(server, await fill(server), self.health)
        address = bind(server, self._listen, self._credentials)
        await server.start()
        self.opened.push_async_callback(server.stop, self._patience)
        return address


def bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials | None) -> str:
    """Binds another address of a server before it starts. Raises UnavailableError where that is not available."""
    try:
        if credentials is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, credentials)
    except RuntimeError:
        raise UnavailableError(
            f"nothing can listen at {listen}: the port is taken, or the address is not one of this machine; "
            f"choose another one"
        ) from None
    return listen if listen.startswith("unix:") else f"{host_of(listen)}:{port}"


async def _describe(
    server: grpc.aio.Server, services: Sequence[str], servicer: health.HealthServicer
) -> None:
    """Adds the services for gRPC's own tools: whether it serves, and what."""
    names = [
        *services,
        health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
        reflection.SERVICE_NAME,
    ]
    for name in ("", *names):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflection.enable_server_reflection(names, server)
