"""The gRPC server for the runtimes of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import grpc.aio

from cenote_proto.v1 import reference_pb2, runtime_pb2
from cenote_proto.v1.reference_pb2_grpc import add_ReferenceServiceServicer_to_server
from cenote_proto.v1.runtime_pb2_grpc import add_RuntimeServiceServicer_to_server
from cenote_security.errors import NameExistsError, UnavailableError, UnknownRuntimeError
from cenote_security.loopback import host_of
from cenote_worker.runtime.patch_jobs import Patcher
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.serving.auth_interceptor import Metadata
from cenote_worker.serving.endpoints import Endpoints, Secured, for_clients, for_components
from cenote_worker.serving.grpc_server import ServerThread, bind
from cenote_worker.serving.limits import MAX_STREAMS, SERVER_TIMEOUTS, ServerTimeouts
from cenote_worker.serving.reference_service import ReferenceService
from cenote_worker.serving.references import SharedValueStore
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.rights import Authorise, bearer_token
from cenote_worker.serving.runtime_service import RuntimeService
from cenote_worker.serving.served_runtime import ServedRuntime
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.usage import RuntimeUsage, unrecorded_usage

THREADS = 16
"""For blocking work whose duration no jail determines: stores, tokens, answers to host calls."""

T = TypeVar("T")


class RuntimeServer:
    """Serves RuntimeService and ReferenceService, health and reflection. All calls are thread-safe, and block.

        relay = HostRelay()
        hosted = HostedRuntime(policy, relay, name=runtime_id)
        server = RuntimeServer(authorise, LocalReferences(room=2**30))
        doors = server.start()
        server.add(runtime_id, hosted, relay)

    The runtimes belong to their creator, and outlive their clients and this server.
    """

    def __init__(
        self,
        authorise: Authorise,
        references: SharedValueStore,
        listen: str = "127.0.0.1:0",
        secured: Secured | None = None,
        patience: ServerTimeouts = SERVER_TIMEOUTS,
        patcher: Patcher | None = None,
    ) -> None:
        """listen: `host:port`, or `unix:PATH`. Port 0 is any free one. secured: with TLS; the endpoint for clients
        has its own port.

        patcher: applies patches to histories, if that is possible here.
        """
        self._authorise = authorise
        self._listen = listen
        self._secured = secured
        self._door = ""
        self._references = references
        self._patience = patience
        self._patcher = patcher
        self._runtimes: dict[str, ServedRuntime] = {}
        self._nobodys = MachineQuotas()
        self._thread = ServerThread(
            "cenote-serving",
            listen,
            for_components(secured.material) if secured else None,
            threads=THREADS,
            most_calls=MAX_STREAMS,
            patience=patience.stop,
        )

    def start(self) -> Endpoints:
        """Raises UnavailableError where an address is not available."""
        address = self._thread.start(self._fill, self._enter)
        return Endpoints(components=address, clients=self._door if self._secured else address)

    def add(
        self, runtime: str, hosted: HostedRuntime, relay: HostRelay, books: RuntimeUsage | None = None
    ) -> None:
        """Serves a runtime under this id. relay: the HostHandler that it was made with. books: of a platform.

        Raises NameExistsError for an id that is already served.
        """
        self._call(lambda: self._add(runtime, hosted, relay, books))

    def remove(self, runtime: str) -> None:
        """Ends the streams of the runtime's clients and withdraws their cells. An unknown id is fine.

        The clients are told to look for it elsewhere: another process may serve it next.
        """
        self._call(lambda: self._remove(runtime))

    def remove_idle(self, runtime: str, seconds: float) -> bool:
        """The same, if it has had no client for so many seconds: none can come between the check and the end.

        Whether it was removed. Raises UnknownRuntimeError.
        """
        return self._call(lambda: self._remove_idle(runtime, seconds))

    def attached(self, runtime: str) -> int:
        """Number of clients that the runtime has, or had a moment ago. Raises UnknownRuntimeError."""
        return self._call(lambda: self._find(runtime).attached)

    def idle(self, runtime: str) -> float:
        """Seconds since its last client left. Raises UnknownRuntimeError."""
        return self._call(lambda: self._find(runtime).idle)

    def quiet(self, runtime: str) -> float:
        """Seconds since the last call or answer. Raises UnknownRuntimeError."""
        return self._call(lambda: self._find(runtime).quiet)

    @contextmanager
    def held(self, runtime: str) -> Iterator[None]:
        """Reserves the runtime for the caller: inside the context, its clients' calls wait in order.

        Raises UnknownRuntimeError.
        """
        served = self._call(lambda: self._find(runtime))
        self._call(served.hold)
        try:
            yield
        finally:
            self._call(served.let_go)

    def close(self) -> None:
        """Ends all streams; the thread ends by itself, soon. Closing twice is fine."""
        if self._thread.serving:
            self._call(self._remove_all)
            self._thread.close()
            self._nobodys.close()

    # -- on the loop --

    async def _fill(self, server: grpc.aio.Server) -> Sequence[str]:
        service = RuntimeService(self._authorise, self._runtimes, self._thread.pool, self._patience)
        add_RuntimeServiceServicer_to_server(service, server)
        references = ReferenceService(self._authorise, self._references, self._thread.pool)
        add_ReferenceServiceServicer_to_server(references, server)
        if self._secured is not None and self._secured.clients:
            listen = f"{host_of(self._listen)}:0"
            self._door = bind(server, listen, for_clients(self._secured.material))
        return (
            runtime_pb2.DESCRIPTOR.services_by_name["RuntimeService"].full_name,
            reference_pb2.DESCRIPTOR.services_by_name["ReferenceService"].full_name,
        )

    async def _enter(self, metadata: Metadata) -> None:
        """Admits a call with any valid token."""
        token = bearer_token(metadata)
        await self._thread.loop.run_in_executor(self._thread.pool, self._authorise, token, None)

    def _remove_all(self) -> None:
        for runtime in list(self._runtimes):
            self._remove(runtime)

    def _add(self, runtime: str, hosted: HostedRuntime, relay: HostRelay, books: RuntimeUsage | None) -> None:
        if runtime in self._runtimes:
            raise NameExistsError(runtime)
        self._runtimes[runtime] = ServedRuntime(
            runtime,
            hosted,
            relay,
            self._references,
            books or unrecorded_usage(runtime, hosted.policy, self._nobodys),
            self._patcher,
            loop=self._thread.loop,
            pool=self._thread.pool,
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

        return self._thread.carry_out(call())
