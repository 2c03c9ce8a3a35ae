"""The gateway's gRPC server, on a thread and a loop of its own: PlatformService, the relays, health, reflection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Self, TypeVar

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from cenote.gateway import reference_relay, runtime_relay
from cenote.gateway.bounds import PRELOADS
from cenote.gateway.callers import Callers
from cenote.gateway.creations import Creations
from cenote.gateway.nodes import Nodes
from cenote.gateway.platform_service import PlatformService
from cenote.gateway.reference_relay import ReferenceRelay
from cenote.gateway.registry import Registry
from cenote.gateway.runtime_relay import RuntimeRelay
from cenote.gateway.runtimes import RuntimeRecord
from cenote.gateway.stores import Stores
from cenote.gateway.upstream import Upstream
from cenote_proto.v1 import platform_pb2
from cenote_proto.v1.platform_pb2_grpc import add_PlatformServiceServicer_to_server
from cenote_security.errors import CenoteError, UnavailableError
from cenote_worker.wire.channels import SERVER

log = logging.getLogger("cenote.gateway")

THREADS: Final = 32
"""For what may block: the database, the disk, nodes that make runtimes."""

MAX_STREAMS: Final = 4_000
"""Streams and calls at once, of all clients together."""

SWEEP_EVERY: Final = 10.0
"""Seconds between two looks at what the operator did, and for runtimes whose lease has run out."""

RECHECK: Final = 15.0
"""Seconds for which a stream through the gateway outlives its token at the most."""

STOP_PATIENCE: Final = 1.0
"""Seconds for which streams may go on when the server is closed."""

T = TypeVar("T")


class GatewayServer:
    """Listens for clients of one platform. Stores and nodes stay their maker's, to close after this."""

    def __init__(
        self,
        stores: Stores,
        nodes: Nodes,
        listen: str = "127.0.0.1:0",
        *,
        relayed: bool = False,
        credentials: grpc.ServerCredentials | None = None,
        upstream: grpc.ChannelCredentials | None = None,
        preloads: Sequence[str] = PRELOADS,
        recheck: float = RECHECK,
    ) -> None:
        """listen: `host:port`, port 0 for any that is free. relayed: see PlatformService.

        credentials: for TLS. upstream: for TLS to nodes. preloads: see Registry. recheck: see Callers.
        """
        self._stores = stores
        self._nodes = nodes
        self._listen = listen
        self._relayed = relayed
        self._credentials = credentials
        self._upstream_credentials = upstream
        self._recheck = recheck
        self._registry = Registry(stores, nodes, preloads)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cenote-gateway")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cenote-gateway", daemon=True)
        self._opened = contextlib.AsyncExitStack()

    def start(self) -> str:
        """The address that clients connect to. Raises UnavailableError where it cannot be had."""
        former = self._registry.unmade()
        self._thread.start()
        try:
            return self._await(self._open(former))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all streams and the thread. Closing twice is fine."""
        if not self._thread.is_alive():
            return
        self._await(self._opened.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- on the loop --

    async def _open(self, former: Sequence[RuntimeRecord]) -> str:
        upstream = Upstream(self._upstream_credentials)
        self._opened.push_async_callback(upstream.close)
        creations = Creations(self._registry, self._pool)
        self._opened.push_async_callback(creations.close)
        server = grpc.aio.server(options=SERVER, maximum_concurrent_rpcs=MAX_STREAMS)
        callers = Callers(self._stores, self._pool, self._recheck)
        service = PlatformService(
            self._stores, self._nodes, self._registry, creations, callers, relayed=self._relayed
        )
        add_PlatformServiceServicer_to_server(service, server)
        runtimes = RuntimeRelay(self._stores, self._nodes, callers, upstream)
        references = ReferenceRelay(self._stores, self._nodes, callers, upstream)
        server.add_generic_rpc_handlers((runtimes.handler(), references.handler()))
        await _describe(server)
        address = self._bind(server)
        await server.start()
        self._opened.push_async_callback(server.stop, STOP_PATIENCE)
        sweeping = asyncio.create_task(self._sweep(former), name="cenote-sweep")
        self._opened.callback(sweeping.cancel)
        return address

    def _bind(self, server: grpc.aio.Server) -> str:
        try:
            if self._credentials is None:
                port = server.add_insecure_port(self._listen)
            else:
                port = server.add_secure_port(self._listen, self._credentials)
        except RuntimeError:
            raise UnavailableError(
                f"the platform cannot listen at {self._listen}: the port is taken, or the address is not one of this "
                f"machine; choose another with --port"
            ) from None
        return f"{self._listen.rpartition(':')[0]}:{port}"

    async def _sweep(self, former: Sequence[RuntimeRecord]) -> None:
        """Behind the start, which is not to wait for machines that are being started again too.

        former: what is ended first.
        """
        for record in former:
            await self._look_after(partial(self._registry.abandon, record))
        while True:
            await self._look_after(self._registry.sweep)
            await asyncio.sleep(SWEEP_EVERY)

    async def _look_after(self, work: Callable[[], None]) -> None:
        try:
            await self._loop.run_in_executor(self._pool, work)
        except CenoteError as error:  # the next one may do better
            log.warning("the platform could not look after its records: %s", error)

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _describe(server: grpc.aio.Server) -> None:
    """What gRPC's own tools ask: whether it serves, and what."""
    names = [
        platform_pb2.DESCRIPTOR.services_by_name["PlatformService"].full_name,
        runtime_relay.SERVICE,
        reference_relay.SERVICE,
        health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
        reflection.SERVICE_NAME,
    ]
    servicer = health.HealthServicer()
    for name in ("", *names):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflection.enable_server_reflection(names, server)
