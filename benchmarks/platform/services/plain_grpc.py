"""The simplest solution: a process with a gRPC server per namespace, and values sent through the client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import grpc

from benchmarks.platform.service import Namespace, Service
from benchmarks.platform.services.codecs import CODECS, Codec
from benchmarks.platform.services.exec_server import SERVICE, UNLIMITED
from benchmarks.runtime.contender import CellFailedError, NotOfferedError


class GrpcNamespace(Namespace):
    def __init__(self, codec: str) -> None:
        self._codec: Codec = CODECS[codec]
        self._process, port = _start_server(codec)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED)
        self._methods: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {
            name: self._channel.unary_unary(f"/{SERVICE}/{name}") for name in ("execute", "share", "receive")
        }

    def execute(self, code: str) -> str:
        return str(self._codec.decode(self._call("execute", self._codec.encode(code))))

    def share(self, name: str) -> object:
        """The bytes; a client that only forwards them need not decode them."""
        return self._call("share", b"", name)

    def receive(self, name: str, parcel: object) -> None:
        if not isinstance(parcel, bytes):
            raise TypeError(type(parcel))
        self._call("receive", parcel, name)

    def close(self) -> None:
        self._channel.close()
        self._process.terminate()
        self._process.wait()

    def _call(self, method: str, body: bytes, name: str = "") -> bytes:
        try:
            answer: bytes = self._methods[method](body, metadata=(("name", name),))
        except grpc.RpcError as error:
            kind = NotOfferedError if error.code() is grpc.StatusCode.UNIMPLEMENTED else CellFailedError
            raise kind(error.details()) from None
        return answer


def _start_server(codec: str) -> tuple[subprocess.Popen[bytes], int]:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.platform.services.exec_server", codec, str(writing)],
        pass_fds=[writing],
    )
    os.close(writing)
    with os.fdopen(reading) as answer:
        return process, int(answer.read())


class CloudpickleOverGrpc(Service[GrpcNamespace]):
    cheap: ClassVar[bool] = False

    def open(self) -> GrpcNamespace:
        return GrpcNamespace("cloudpickle")

    def apart(
        self,
    ) -> AbstractContextManager[tuple[Callable[[], GrpcNamespace], Callable[[], GrpcNamespace]]]:
        """The client carries each value between any two machines."""
        return nullcontext((self.open, self.open))

    def close(self) -> None:
        """There is nothing but the namespaces' own processes."""


class JsonOverGrpc(CloudpickleOverGrpc):
    def open(self) -> GrpcNamespace:
        return GrpcNamespace("json")
