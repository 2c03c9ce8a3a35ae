"""A command's connection to a platform: which one is meant, plain calls to its gateway, a runtime to work in; for
commands of the operator, the records of the platform of this user, whether it runs or not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from cenote.cli.arguments import positive_seconds
from cenote.runtime.remote.address import DEFAULT_WAIT, Destination, destination, require_client, wait_seconds
from cenote.terminal.screen import Screen
from cenote_proto.scalars import make
from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy

if TYPE_CHECKING:
    import grpc

    from cenote.gateway.audit.entries import AuditEvent
    from cenote.gateway.process.daemon_lock import Running
    from cenote.gateway.store.database import Database
    from cenote.runtime.faces.sync import PythonRuntime
    from cenote.runtime.remote.reconnection import Returning
    from cenote_proto.v1 import platform_pb2
    from cenote_worker.checkpoints.retention import Retention


Request = TypeVar("Request")
Reply = TypeVar("Reply")

_WAIT = 60.0
"""Seconds for an answer; making a runtime takes the longest, but for a fork."""

_FORK_WAIT = 115.0
"""Somewhat more than the platform gives it."""


def add_address_option(parser: argparse.ArgumentParser, *, waits: bool = True) -> None:
    """waits: whether `--wait` is about the platform; else the command has another meaning for it, and the environment
    says how long.
    """
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of the platform (default: CENOTE_ADDRESS, else the one that `cenote up` started here)",
    )
    parser.set_defaults(answer_wait=None)
    if not waits:
        return
    parser.add_argument(
        "--wait",
        dest="answer_wait",
        type=seconds,
        metavar="SECONDS",
        help="for a platform that does not answer and was there before, as while it is started again "
        f"(default: CENOTE_WAIT, else {DEFAULT_WAIT:g}; 0 for no wait)",
    )


def seconds(text: str) -> float:
    """A number of seconds that may be 0."""
    return 0.0 if text in ("0", "0.0") else positive_seconds(text)


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    handler: object,
    *,
    waits: bool = True,
) -> argparse.ArgumentParser:
    """One thing that can be done at a platform. waits: see add_address_option."""
    parser = verbs.add_parser(name, help=text)
    add_address_option(parser, waits=waits)
    parser.set_defaults(handler=handler)
    return parser


def add_runtime_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, handler: object
) -> argparse.ArgumentParser:
    """One that is about a runtime."""
    parser = add_verb(verbs, name, text, handler)
    parser.add_argument("name", metavar="NAME", help="a name, or an id")
    return parser


def platform_destination(
    address: str | None, token: str | None = None, wait: float | None = None
) -> Destination:
    """The platform that a command is about. token, wait: see destination.

    One of this machine that is being started, or died and may be started again, is waited for. Raises
    UnavailableError when none is known, UsageError, MissingExtraError.
    """
    named = destination(address, token, wait)
    if named is not None:
        return named
    require_client()
    patience = wait_seconds() if wait is None else wait
    running = _running_here(patience)
    here = destination(running.address, token, patience)
    assert here is not None, "a platform listens at an address"
    return replace(here, authority=here.authority or running.authority)


def _running_here(wait: float) -> Running:
    from cenote.gateway.process.daemon_lock import died_at, running_at
    from cenote.gateway.store.state_folder import state_folder
    from cenote.runtime.remote.reconnection import Returning

    state, returning = state_folder(), Returning("the platform here", wait, Screen().note)
    while True:
        running = running_at(state.lock)
        if running is not None and running.address:
            return running
        starting = running is not None or running_at(state.watch) is not None
        if not starting and not died_at(state.lock):
            raise UnavailableError(_none_here(was_there=state.lock.exists()))
        why = "it is being started, or started again" if starting else "it died"
        pause = returning.pause(why)
        if pause is not None:
            time.sleep(pause)
        elif starting:
            raise UnavailableError(
                f"the platform here does not answer: {why}; try again in a moment, or --wait"
            )
        else:
            raise UnavailableError(
                f"the platform here died, and nothing has started it again within {wait:g} s; {state.log} may say "
                "why, `cenote up` starts it again"
            )


def _none_here(*, was_there: bool) -> str:
    if was_there:
        return "the platform here was ended; `cenote up` has it again, or say which with CENOTE_ADDRESS=host:port"
    return "no platform runs here; start one with `cenote up`, or say which with CENOTE_ADDRESS=host:port"


class PlatformConnection:
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
        self, name: str, policy: SandboxPolicy, *, lease: float, retention: Retention
    ) -> platform_pb2.RuntimeDescription:
        from cenote_proto.v1 import platform_pb2
        from cenote_worker.wire import option_messages, policies

        request = make(
            platform_pb2.CreateRuntimeRequest,
            name=name,
            policy=policies.from_policy(policy),
            lease=lease,
        )
        option_messages.fill_options(request, retention)
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

    def drain(self, node: str, *, resume: bool) -> list[platform_pb2.NodeRuntime]:
        """What is still served there. Does not wait for anything to leave."""
        from cenote_proto.v1 import platform_pb2

        request = make(platform_pb2.DrainNodeRequest, node=node, resume=resume)
        return list(self._asked(self._stub.DrainNode, request).runtimes)

    def _asked(
        self,
        method: grpc.UnaryUnaryMultiCallable[Request, Reply],
        request: Request,
        patience: float = _WAIT,
    ) -> Reply:
        import grpc

        from cenote.runtime.remote.channels import authorization, meaning
        from cenote.runtime.remote.reconnection import Returning

        returning = Returning(f"the platform at {self._where.address}", self._where.wait, Screen().note)
        while True:
            try:
                answer = method(request, metadata=authorization(self._where.token), timeout=patience)
            except grpc.RpcError as error:
                # What a blocking call raises has the same questions to it, and no class of its own that is public.
                failed = cast("grpc.aio.AioRpcError", error)
                pause = self._pause(returning, failed, request)
                if pause is None:
                    raise meaning(failed, self._where.address, token=self._where.token) from None
            else:
                return answer
            time.sleep(pause)

    def _pause(self, returning: Returning, error: grpc.aio.AioRpcError, request: object) -> float | None:
        """Seconds before the next try, where there is one: see ReturnWaiter."""
        from cenote.runtime.remote.reconnection import is_coming_back, short

        if not is_coming_back(error, self._where, type(request).__name__, request):
            return None
        return returning.pause(short(error.details() or ""))


@contextmanager
def platform_connection(where: Destination) -> Iterator[PlatformConnection]:
    """A connection that is closed at the end of the block."""
    import grpc

    from cenote.runtime.remote.channels import OPTIONS, tls_credentials

    if where.authority:
        channel = grpc.secure_channel(where.address, tls_credentials(where.authority), options=OPTIONS)
    else:
        channel = grpc.insecure_channel(where.address, options=OPTIONS)
    with channel:
        yield PlatformConnection(channel, where)


@contextmanager
def attached_runtime(name: str, where: Destination) -> Iterator[PythonRuntime]:
    """name: or id. Raises UnknownRuntimeError when there is no such runtime: none is made."""
    from cenote.runtime.core.backend import Backend
    from cenote.runtime.core.runtime_core import RuntimeCore
    from cenote.runtime.faces.sync import PythonRuntime
    from cenote.runtime.inject.host_function_server import HostFunctionServer
    from cenote.runtime.remote.platform_client import client_of
    from cenote.runtime.remote.runtime import RemoteRuntime
    from cenote_worker.wire import policies

    with platform_connection(where) as line:
        found = line.runtime(name)

    def there(policy: SandboxPolicy, desk: HostFunctionServer) -> Backend:
        return RemoteRuntime(client_of(where), policy, desk, found.name, attach=True)

    core = RuntimeCore((), (), (), None, policies.to_policy(found.policy), None, there)
    with PythonRuntime.over(core) as runtime:
        yield runtime


@contextmanager
def records() -> Iterator[Database]:
    """The database, closed at the end of the block. Raises UnavailableError where no platform has run yet."""
    from cenote.gateway.store.database import Database, database_place
    from cenote.gateway.store.state_folder import state_folder

    place = database_place(state_folder())
    if isinstance(place, Path) and not place.exists():
        raise UnavailableError(f"there are no records at {place}; `cenote up` makes them")
    with Database(place) as database:
        yield database


def note(database: Database, event: AuditEvent) -> None:
    """Leaves what was done for the gateway to put on record."""
    from cenote.gateway.audit.recorder import Notices

    Notices(database).leave(event)
