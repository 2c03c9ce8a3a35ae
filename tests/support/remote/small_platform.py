"""A platform in one process: a real server over real jails, behind a gateway that knows one token and no tenants."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

from cenote.runtime.replay.patcher import HOST_PATCHER
from cenote_proto.v1 import platform_pb2
from cenote_proto.v1.platform_pb2_grpc import PlatformServiceServicer, add_PlatformServiceServicer_to_server
from cenote_security.errors import CenoteError, NameExistsError, NotAuthenticatedError, UnknownRuntimeError
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.serving.limits import SERVER_TIMEOUTS, ServerTimeouts
from cenote_worker.serving.references import LocalReferences
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.rights import Rights
from cenote_worker.serving.server import RuntimeServer
from cenote_worker.wire import policies
from cenote_worker.wire.channels import SERVER
from cenote_worker.wire.failures import METADATA, status_of, to_failure

TOKEN = "tests-only"


class _Relay(grpc.GenericRpcHandler):
    """Passes unary calls of ReferenceService, and streams of answers, on to the server that has the values."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)

    def service(self, details):
        method = details.method
        if not method.startswith("/cenote_proto.v1.ReferenceService/"):
            return None
        metadata = [item for item in details.invocation_metadata if item.key == "authorization"]
        if method.endswith("/ReadReference"):
            read = self._channel.unary_stream(method)
            return grpc.unary_stream_rpc_method_handler(lambda request, _: read(request, metadata=metadata))
        call = self._channel.unary_unary(method)

        def answer(request, context):
            try:
                return call(request, metadata=metadata)
            except grpc.RpcError as error:
                context.set_trailing_metadata(error.trailing_metadata())
                context.abort(error.code(), error.details())

        return grpc.unary_unary_rpc_method_handler(answer)


class SmallPlatform(PlatformServiceServicer):
    """Start it, give its `address` and TOKEN to clients, close it."""

    def __init__(self, patience: ServerTimeouts = SERVER_TIMEOUTS) -> None:
        self.references = LocalReferences(room=1 << 30)
        self.server = RuntimeServer(self._authorise, self.references, patience=patience, patcher=HOST_PATCHER)
        self.hosted: dict[str, HostedRuntime] = {}
        self._patience = patience
        self._closed = False
        self._relays: dict[str, HostRelay] = {}
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()
        self._gateway = grpc.server(ThreadPoolExecutor(4), options=SERVER)
        add_PlatformServiceServicer_to_server(self, self._gateway)
        self.address = f"127.0.0.1:{self._gateway.add_insecure_port('127.0.0.1:0')}"
        self.runtimes_address = ""

    def start(self) -> SmallPlatform:
        self.runtimes_address = self.server.start().clients
        self._gateway.add_generic_rpc_handlers((_Relay(self.runtimes_address),))
        self._gateway.start()
        return self

    def move(self) -> None:
        """The runtimes get another server, at another port, as after a restart."""
        self.server.close()
        self.server = RuntimeServer(
            self._authorise, self.references, patience=self._patience, patcher=HOST_PATCHER
        )
        self.runtimes_address = self.server.start().clients
        for runtime, hosted in self.hosted.items():
            self.server.add(runtime, hosted, self._relays[runtime])

    def delete_all(self) -> None:
        with self._lock:
            gone, self.hosted = self.hosted, {}
            self._names.clear()
        for runtime, hosted in gone.items():
            self.server.remove(runtime)
            hosted.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._gateway.stop(None).wait()
        self.server.close()
        for hosted in self.hosted.values():
            hosted.close()
        self.references.close()

    def _authorise(self, token: str, _runtime: str | None) -> Rights:
        if token != TOKEN:
            raise NotAuthenticatedError("an unknown token")
        return Rights(tenant="tests")

    # -- PlatformService --

    def CreateRuntime(self, request, context):
        if f"Bearer {TOKEN}" != dict(context.invocation_metadata()).get("authorization"):
            self._refuse(context, NotAuthenticatedError("an unknown token"))
        with self._lock:
            if request.name in self._names:
                if not request.attach:
                    self._refuse(context, NameExistsError(request.name))
                return self._described(self._names[request.name])
            runtime = f"rt_{secrets.token_hex(8)}"
            relay = HostRelay()
            hosted = HostedRuntime(policies.to_policy(request.policy), relay, name=runtime)
            self.hosted[runtime], self._relays[runtime] = hosted, relay
            self._names[request.name or runtime] = runtime
        self.server.add(runtime, hosted, relay)
        return self._described(runtime)

    def GetRuntime(self, request, context):
        runtime = self._names.get(request.name, request.name)
        if runtime not in self.hosted:
            self._refuse(context, UnknownRuntimeError(request.name))
        return self._described(runtime)

    def DeleteRuntime(self, request, context):
        with self._lock:
            runtime = self._names.pop(request.name, request.name)
            hosted = self.hosted.pop(runtime, None)
            self._relays.pop(runtime, None)
        if hosted is None:
            self._refuse(context, UnknownRuntimeError(request.name))
        self.server.remove(runtime)
        hosted.close()
        return platform_pb2.DeleteRuntimeReply()

    def ListRuntimes(self, request, context):
        return platform_pb2.ListRuntimesReply(runtimes=map(self._described, self.hosted))

    def Describe(self, request, context):
        return platform_pb2.PlatformDescription(software="tests", tenant="tests")

    def _described(self, runtime: str) -> platform_pb2.RuntimeDescription:
        hosted = self.hosted[runtime]
        return platform_pb2.RuntimeDescription(
            id=runtime,
            name=next((name for name, id in self._names.items() if id == runtime), ""),
            address=self.runtimes_address,
            capability=TOKEN,
            policy=policies.from_policy(hosted.policy),
            state=platform_pb2.RuntimeDescription.READY,
            clients=self.server.attached(runtime),
            steps=hosted.step,
        )

    def _refuse(self, context: grpc.ServicerContext, error: CenoteError) -> None:
        context.set_trailing_metadata(((METADATA, to_failure(error).SerializeToString()),))
        context.abort(status_of(error), str(error))
