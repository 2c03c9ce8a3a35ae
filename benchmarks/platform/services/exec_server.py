"""A process with one namespace behind unary gRPC: `python -m ...exec_server CODEC FD`. It writes its port to FD."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

from benchmarks.platform.services.codecs import CODECS, Codec
from benchmarks.runtime.contender import NotOfferedError

SERVICE = "benchmarks.Namespace"
UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


class Methods:
    """Bodies are encoded values; the variable's name is in the metadata, so that no value is wrapped in another."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._namespace: dict[str, object] = {"__name__": "__main__"}

    def execute(self, body: bytes, _: grpc.ServicerContext) -> bytes:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(str(self._codec.decode(body)), "<cell>", "exec"), self._namespace)
        return self._codec.encode(printed.getvalue())

    def share(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return self._codec.encode(self._namespace[_name(context)])
        except NotOfferedError as error:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error))

    def receive(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        self._namespace[_name(context)] = self._codec.decode(body)
        return b""


def _name(context: grpc.ServicerContext) -> str:
    return str(dict(context.invocation_metadata())["name"])


def serve(codec: Codec) -> tuple[grpc.Server, int]:
    """A server on a free port with one thread, since it has one namespace."""
    methods = Methods(codec)
    server = grpc.server(ThreadPoolExecutor(1), options=UNLIMITED)
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(getattr(methods, name))
        for name in ("execute", "share", "receive")
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def main(codec: str, descriptor: str) -> None:
    server, port = serve(CODECS[codec])
    with os.fdopen(int(descriptor), "w") as out:
        out.write(str(port))
    signal.sigwait({signal.SIGTERM})
    server.stop(None).wait()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before any thread starts: for sigwait
    main(*sys.argv[1:])
