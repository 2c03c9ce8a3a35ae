"""A platform from its start to its end: in this process, or in one of its own that outlives this one."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from typing import BinaryIO, Final

from cenote.gateway.daemon_lock import DaemonLock, Running, running_at, runs_already
from cenote.gateway.daemon_unsafe import Daemon, spawn
from cenote.gateway.first_token import leave_token
from cenote.gateway.local_nodes import LocalNodes
from cenote.gateway.nodes import Nodes
from cenote.gateway.options import PlatformOptions
from cenote.gateway.server import GatewayServer
from cenote.gateway.state_folder import StateFolder
from cenote.gateway.stores import Stores
from cenote.gateway.transport import transport
from cenote.runtime.remote.address import token_file
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security.errors import CenoteError, UnavailableError, UsageError
from cenote_worker.wire.failures import to_error, to_failure

READY_PATIENCE: Final = 60.0
"""Seconds for a platform to be ready; a second or two is usual."""

END_PATIENCE: Final = 30.0
"""Seconds for a platform to end what it has, before it is ended."""


@contextmanager
def platform(options: PlatformOptions) -> Iterator[Running]:
    """A platform in this process, ready inside and ended behind.

    Raises UnavailableError when one runs at this state folder, or the port is taken; what its parts raise.
    """
    options.state.make()
    with ExitStack() as opened:
        lock = DaemonLock(options.state.lock)
        opened.callback(lock.release)
        running = Running(pid=os.getpid(), since=time.time(), relayed=options.relayed)
        lock.write(running)
        secured = transport(options)
        stores = opened.enter_context(Stores(options.state))
        nodes = opened.enter_context(_nodes(options, stores))
        listen = f"{options.host}:{options.port}"
        server = GatewayServer(
            stores, nodes, listen, relayed=options.relayed, credentials=secured.credentials
        )
        opened.enter_context(closing(server))
        running = replace(running, address=server.start(), authority=secured.authority)
        leave_token(stores, token_file())
        lock.write(running)
        yield running


def serve(options: PlatformOptions, ready: Callable[[Running], None]) -> None:
    """The same until SIGTERM or SIGINT comes. On the main thread. ready: called once."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with platform(options) as running:
        ready(running)
        ended.wait()


def start_platform(options: PlatformOptions) -> Running:
    """Starts a platform as a process of its own and waits until it is ready. See `platform` for what it raises."""
    if (running := running_at(options.state.lock)) is not None:
        raise runs_already(running)
    options.state.make()
    with spawn(options.to_json(), options.state.log) as daemon:
        message = _first_words(daemon)
        if not message:
            daemon.kill()
            raise UnavailableError(f"the platform ended, or was not ready in time; see {options.state.log}")
    said = json.loads(message)
    if "failure" in said:
        raise to_error(Failure.FromString(bytes.fromhex(said["failure"])))
    return Running(**said["running"])


def stop_platform(state: StateFolder) -> Running | None:
    """Ends the platform of a state folder and waits until it is gone. None when there was none.

    Raises UnavailableError for one that is being started.
    """
    running = running_at(state.lock)
    if running is None:
        return None
    try:
        process = os.pidfd_open(running.pid)
    except ProcessLookupError:
        return running
    try:
        if (
            running_at(state.lock) != running
        ):  # from here on the descriptor is surely the one that holds the lock
            raise runs_already(None)
        _end(process)
    finally:
        os.close(process)
    return running


def announce(pipe: BinaryIO, said: Running | CenoteError) -> None:
    """From the process of a platform to whoever started it: that it is ready, or why not. The first time counts."""
    if pipe.closed:
        return
    if isinstance(said, Running):
        message: dict[str, object] = {"running": asdict(said)}
    else:
        message = {"failure": to_failure(said).SerializeToString().hex()}
    with pipe:
        pipe.write(json.dumps(message).encode())


def _nodes(options: PlatformOptions, stores: Stores) -> AbstractContextManager[Nodes]:
    if options.ray_address is not None:
        raise UsageError("this version runs on one machine; leave --ray-address out")
    return LocalNodes(stores.master_key, warm=True)


def _first_words(daemon: Daemon) -> bytes:
    """What the new process says until it closes its end; nothing if it does not in time."""
    said, until = b"", time.monotonic() + READY_PATIENCE
    while select.select([daemon.pipe], [], [], max(until - time.monotonic(), 0.0))[0]:
        if not (more := os.read(daemon.pipe, 65536)):
            return said
        said += more
    return b""


def _end(process: int) -> None:
    signal.pidfd_send_signal(process, signal.SIGTERM)
    if select.select([process], [], [], END_PATIENCE)[0]:
        return
    signal.pidfd_send_signal(process, signal.SIGKILL)
    select.select([process], [], [], END_PATIENCE)
