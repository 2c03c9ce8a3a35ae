"""A gRPC server on a thread and an event loop of its own, for the runtimes of one process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from cenote_proto.v1 import reference_pb2, runtime_pb2
from cenote_proto.v1.reference_pb2_grpc import add_ReferenceServiceServicer_to_server
from cenote_proto.v1.runtime_pb2_grpc import add_RuntimeServiceServicer_to_server
from cenote_security.errors import NameExistsError, UnavailableError, UnknownRuntimeError
from cenote_worker.hosted.runtime import HostedRuntime
from cenote_worker.serving.limits import MAX_STREAMS, PATIENCE, Patience
from cenote_worker.serving.reference_service import ReferenceService
from cenote_worker.serving.references import ReferenceStore
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.rights import Authorise
from cenote_worker.serving.runtime_service import RuntimeService
from cenote_worker.serving.served import ServedRuntime
from cenote_worker.wire import channels

THREADS = 16
"""For what may block: jails that start, stores, tokens, and jails that are slow to take an answer."""

LINGER = 1.0
"""Seconds that the loop outlives its server. gRPC has late news of streams that were cut, and where it meets a loop
that is closed it drops the news of all other loops of the process as well."""

T = TypeVar("T")


class RuntimeServer:
    """Serves RuntimeService and ReferenceService, health and reflection. All calls are thread-safe, and block.

        relay = HostRelay()
        hosted = HostedRuntime(policy, relay, name=runtime_id)
        server = RuntimeServer(authorise, LocalReferences(room=2**30))
        address = server.start()
        server.add(runtime_id, hosted, relay)

    The runtimes belong to whoever made them, and outlive their clients and this server.
    """

    def __init__(
        self,
        authorise: Authorise,
        references: ReferenceStore,
        listen: str = "127.0.0.1:0",
        credentials: grpc.ServerCredentials | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        """listen: `host:port`, or `unix:PATH`. Port 0 is any that is free. credentials: for TLS."""
        self._authorise = authorise
        self._references = references
        self._listen = listen
        self._credentials = credentials
        self._patience = patience
        self._runtimes: dict[str, ServedRuntime] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cenote-serving")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="cenote-server", daemon=True)
        self._server: grpc.aio.Server | None = None
        self._closed = False

    def start(self) -> str:
        """The address that clients connect to. Raises UnavailableError where it cannot be had."""
        self._thread.start()
        try:
            return self._await(self._open())
        except BaseException:
            self._stop()
            raise

    def add(self, runtime: str, hosted: HostedRuntime, relay: HostRelay) -> None:
        """Serves a runtime under this id. relay: the HostHandler that it was made with.

        Raises NameExistsError for an id that is served already.
        """
        self._call(lambda: self._add(runtime, hosted, relay))

    def remove(self, runtime: str) -> None:
        """Ends the streams of the runtime's clients; their cells are taken back. An unknown id is fine.

        They are told to look for it elsewhere: it may be served by another process next.
        """
        self._call(lambda: self._remove(runtime))

    def remove_idle(self, runtime: str, seconds: float) -> bool:
        """The same, if it has had no client for so long: none can come between the look and the end.

        Whether it had none. Raises UnknownRuntimeError.
        """
        return self._call(lambda: self._remove_idle(runtime, seconds))

    def attached(self, runtime: str) -> int:
        """How many clients the runtime has, or had a moment ago. Raises UnknownRuntimeError."""
        return self._call(lambda: self._find(runtime).attached)

    def idle(self, runtime: str) -> float:
        """For how many seconds it has had none. Raises UnknownRuntimeError."""
        return self._call(lambda: self._find(runtime).idle)

    def close(self) -> None:
        """Ends all streams; the thread ends by itself, soon. Closing twice is fine."""
        if self._thread.is_alive() and not self._closed:
            self._await(self._shut())
            self._stop()

    # -- on the loop --

    async def _open(self) -> str:
        server = grpc.aio.server(options=channels.SERVER, maximum_concurrent_rpcs=MAX_STREAMS)
        service = RuntimeService(self._authorise, self._runtimes, self._pool, self._patience)
        add_RuntimeServiceServicer_to_server(service, server)
        references = ReferenceService(self._authorise, self._references, self._pool)
        add_ReferenceServiceServicer_to_server(references, server)
        await _describe(server)
        address = self._bind(server)
        await server.start()
        self._server = server
        return address

    def _bind(self, server: grpc.aio.Server) -> str:
        try:
            if self._credentials is None:
                port = server.add_insecure_port(self._listen)
            else:
                port = server.add_secure_port(self._listen, self._credentials)
        except RuntimeError as error:
            raise UnavailableError(f"this server cannot listen at {self._listen}: {error}") from error
        if self._listen.startswith("unix:"):
            return self._listen
        return f"{self._listen.rpartition(':')[0]}:{port}"

    async def _shut(self) -> None:
        for runtime in list(self._runtimes):
            self._remove(runtime)
        if self._server is not None:
            await self._server.stop(self._patience.stop)

    def _add(self, runtime: str, hosted: HostedRuntime, relay: HostRelay) -> None:
        if runtime in self._runtimes:
            raise NameExistsError(runtime)
        self._runtimes[runtime] = ServedRuntime(
            runtime,
            hosted,
            relay,
            self._references,
            loop=self._loop,
            pool=self._pool,
            grace=self._patience.grace,
        )

    def _remove(self, runtime: str) -> None:
        served = self._runtimes.pop(runtime, None)
        if served is not None:
            served.close(
                UnavailableError(f"runtime {runtime!r} is not served here any more; ask where it is")
            )

    def _remove_idle(self, runtime: str, seconds: float) -> bool:
        idle = self._find(runtime).idle > seconds
        if idle:
            self._remove(runtime)
        return idle

    def _find(self, runtime: str) -> ServedRuntime:
        if runtime not in self._runtimes:
            raise UnknownRuntimeError(runtime)
        return self._runtimes[runtime]

    # -- from other threads --

    def _call(self, work: Callable[[], T]) -> T:
        async def call() -> T:
            return work()

        return self._await(call())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.call_later, LINGER, self._loop.stop)
        self._pool.shutdown()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()


async def _describe(server: grpc.aio.Server) -> None:
    """What gRPC's own tools ask: whether it serves, and what."""
    names = [
        runtime_pb2.DESCRIPTOR.services_by_name["RuntimeService"].full_name,
        reference_pb2.DESCRIPTOR.services_by_name["ReferenceService"].full_name,
        health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
        reflection.SERVICE_NAME,
    ]
    servicer = health.HealthServicer()
    for name in ("", *names):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflection.enable_server_reflection(names, server)
