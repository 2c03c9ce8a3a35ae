"""A command's line to a platform: which one is meant, and plain calls to its gateway."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from cenote.runtime.remote.address import Destination, destination
from cenote_proto.scalars import make
from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy

if TYPE_CHECKING:
    import grpc

    from cenote_proto.v1 import platform_pb2

Request = TypeVar("Request")
Reply = TypeVar("Reply")

_WAIT = 60.0
"""Seconds for an answer; making a runtime takes the longest, but for a fork."""

_FORK_WAIT = 115.0
"""Somewhat more than the platform gives it."""


def add_address_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of the platform (default: CENOTE_ADDRESS, else the one that `cenote up` started here)",
    )


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, handler: object
) -> argparse.ArgumentParser:
    """One thing that can be done at a platform."""
    parser = verbs.add_parser(name, help=text)
    add_address_option(parser)
    parser.set_defaults(handler=handler)
    return parser


def add_runtime_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, handler: object
) -> argparse.ArgumentParser:
    """One that is about a runtime."""
    parser = add_verb(verbs, name, text, handler)
    parser.add_argument("name", metavar="NAME", help="a name, or an id")
    return parser


def meant(address: str | None, token: str | None = None) -> Destination:
    """The platform that a command is about. token: see destination.

    Raises UnavailableError when none is known, UsageError.
    """
    from cenote.gateway.daemon_lock import running_at
    from cenote.gateway.state_folder import state_folder

    named = destination(address, token)
    if named is not None:
        return named
    running = running_at(state_folder().lock)
    if running is not None and not running.address:
        raise UnavailableError("the platform here is being started, or started again; try again in a moment")
    here = destination(running.address, token) if running is not None else None
    if running is None or here is None:
        raise UnavailableError(
            "no platform runs here; start one with `cenote up`, or say which with CENOTE_ADDRESS=host:port"
        )
    return replace(here, authority=here.authority or running.authority)


class PlatformLine:
    """Calls raise what the gateway refuses with, and UnavailableError when it does not answer."""

    def __init__(self, channel: grpc.Channel, where: Destination) -> None:
        from cenote_proto.v1.platform_pb2_grpc import PlatformServiceStub

        self._channel = channel
        self._stub = PlatformServiceStub(channel)
        self._where = where

    def describe(self) -> platform_pb2.PlatformDescription:
        from cenote_proto.v1 import platform_pb2

        return self._asked(self._stub.Describe, platform_pb2.DescribePlatform())

    def alive(self, patience: float) -> bool:
        """Whether its gateway says that it serves, by gRPC's own health service. No check is waited for."""
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        ask = health_pb2_grpc.HealthStub(self._channel).Check
        answer = self._asked(ask, health_pb2.HealthCheckRequest(), patience)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def health(self, patience: float) -> platform_pb2.HealthReport:
        """Whether the platform can be used now. It takes no token. patience: seconds for the answer."""
        from cenote_proto.v1 import platform_pb2

        return self._asked(self._stub.CheckHealth, platform_pb2.HealthQuestion(), patience)

    def runtimes(self) -> list[platform_pb2.RuntimeDescription]:
        """All of the tenant's."""
        from cenote_proto.v1 import platform_pb2

        found: list[platform_pb2.RuntimeDescription] = []
        page = ""
        while True:
            reply = self._asked(self._stub.ListRuntimes, make(platform_pb2.ListRuntimesRequest, page=page))
            found.extend(reply.runtimes)
            if not (page := reply.next_page):
                return found

    def runtime(self, name: str) -> platform_pb2.RuntimeDescription:
        """By name or id, as it is: one that sleeps goes on doing so."""
        from cenote_proto.v1 import platform_pb2

        return self._asked(self._stub.GetRuntime, make(platform_pb2.RuntimeName, name=name, look=True))

    def wake(self, name: str, *, partial: bool) -> platform_pb2.RuntimeDescription:
        """The same, served again if it was in the store alone. partial: see RuntimeName."""
        from cenote_proto.v1 import platform_pb2

        return self._asked(self._stub.GetRuntime, make(platform_pb2.RuntimeName, name=name, partial=partial))

    def create(
        self, name: str, policy: SandboxPolicy, *, lease: float, durable: bool, hibernate_after: float
    ) -> platform_pb2.RuntimeDescription:
        from cenote_proto.v1 import platform_pb2
        from cenote_worker.wire import policies

        request = make(
            platform_pb2.CreateRuntimeRequest,
            name=name,
            policy=policies.to_message(policy),
            lease=lease,
            durable=durable,
            hibernate_after=hibernate_after,
        )
        return self._asked(self._stub.CreateRuntime, request)

    def fork(self, request: platform_pb2.ForkRuntimeRequest) -> list[platform_pb2.RuntimeDescription]:
        """The branches, all of them."""
        return list(self._asked(self._stub.ForkRuntime, request, _FORK_WAIT).runtimes)

    def delete(self, name: str) -> None:
        from cenote_proto.v1 import platform_pb2

        self._asked(self._stub.DeleteRuntime, make(platform_pb2.RuntimeName, name=name))

    def move(self, name: str, node: str) -> str:
        """Where it is then. node: empty for another machine than now."""
        from cenote_proto.v1 import platform_pb2

        request = make(platform_pb2.MoveRuntimeRequest, name=name, node=node)
        return self._asked(self._stub.MoveRuntime, request).node

    def _asked(
        self,
        method: grpc.UnaryUnaryMultiCallable[Request, Reply],
        request: Request,
        patience: float = _WAIT,
    ) -> Reply:
        import grpc

        from cenote.runtime.remote.channels import authorization, meaning

        try:
            return method(request, metadata=authorization(self._where.token), timeout=patience)
        except grpc.RpcError as error:
            # What a blocking call raises has the same questions to it, and no class of its own that is public.
            raise meaning(
                cast("grpc.aio.AioRpcError", error), self._where.address, token=self._where.token
            ) from None


@contextmanager
def platform_line(where: Destination) -> Iterator[PlatformLine]:
    """A line that is closed behind."""
    import grpc

    from cenote.runtime.remote.channels import OPTIONS, tls_credentials

    if where.authority:
        channel = grpc.secure_channel(where.address, tls_credentials(where.authority), options=OPTIONS)
    else:
        channel = grpc.insecure_channel(where.address, options=OPTIONS)
    with channel:
        yield PlatformLine(channel, where)
