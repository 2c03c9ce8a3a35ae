"""The clients of one runtime: how many, and which of two connections counts."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import CenoteError, UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.serving.calls.history_requests import HistoryRequests
from cenote_worker.serving.limits import MAX_CLIENTS
from cenote_worker.serving.references import LocalReferences
from cenote_worker.serving.relay import HostRelay
from cenote_worker.serving.served_runtime import ServedRuntime
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.usage import unrecorded_usage
from cenote_worker.transport.content import Content


class Line:
    """Records how it ended."""

    def __init__(self) -> None:
        self.ends: list[CenoteError | None] = []
        self.closed = 0
        self.full = False
        self.told: list[runtime_pb2.ServerFrame] = []

    def tell(self, frame: runtime_pb2.ServerFrame, content: Content | None = None) -> None:
        self.told.append(frame)

    def end(self, error: CenoteError | None) -> None:
        self.ends.append(error)

    def close(self) -> None:
        self.closed += 1


def served() -> ServedRuntime:
    """On the running loop; without a jail, which these tests never need."""
    relay = HostRelay()
    hosted = HostedRuntime(SandboxPolicy(), relay, name="r")
    pool, loop = ThreadPoolExecutor(1), asyncio.get_running_loop()
    books = unrecorded_usage("r", hosted.policy, MachineQuotas())
    return ServedRuntime("r", hosted, relay, LocalReferences(room=1), books, loop=loop, pool=pool, grace=60)


def hello(client: str) -> runtime_pb2.Hello:
    return runtime_pb2.Hello(runtime="r", client=client)


async def test_clients_are_bounded() -> None:
    """One at the limit is admitted; one past it is not; one that leaves frees its place."""
    runtime = served()
    first, _ = runtime.attach(hello("0"), "us", line := Line())
    for number in range(1, MAX_CLIENTS):
        runtime.attach(hello(str(number)), "us", Line())
    with pytest.raises(UnavailableError, match=str(MAX_CLIENTS)):
        runtime.attach(hello("one too many"), "us", Line())
    runtime.attach(hello("1"), "us", Line())
    runtime.detach(first, line, for_good=True)
    runtime.attach(hello("one more"), "us", Line())
    assert MAX_CLIENTS == runtime.attached
    runtime.close(UnavailableError("over"))


async def test_the_newer_line_counts() -> None:
    """The older one ends and is closed before the client continues; its late end changes nothing."""
    runtime, old, new = served(), Line(), Line()
    client, known = runtime.attach(hello("one"), "us", old)
    again, known_again = runtime.attach(hello("one"), "us", new)
    assert (client, False, True) == (again, known, known_again)
    assert (1, 1, 0) == (len(old.ends), old.closed, len(new.ends))
    runtime.detach(client, old, for_good=False)
    assert new is client.line
    runtime.close(UnavailableError("over"))


async def test_news_of_a_patch_wait_for_nobody() -> None:
    """A replay has as many as the history has steps, again and again; a client that reads none receives none."""
    runtime, line = served(), Line()
    client, _ = runtime.attach(hello("one"), "us", line)
    requests = HistoryRequests(runtime, client, "", lambda _call, _answer: None)
    for line.full in (False, True):
        requests.progressed(runtime_pb2.ServerFrame(call=1))
    assert 1 == len(line.told)
    runtime.close(UnavailableError("over"))


async def test_what_is_left_behind() -> None:
    """It is released when the client leaves for good, unless it was requested again."""
    runtime, line = served(), Line()
    client, _ = runtime.attach(hello("one"), "us", line)
    withdrawn: list[str] = []
    for key in ("wanted", "left"):
        client.leave_behind(key, lambda *, waiting=True, key=key: withdrawn.append(key))
    client.claim("wanted")
    runtime.detach(client, line, for_good=True)
    assert (["left"], None) == (withdrawn, runtime.client("one"))
