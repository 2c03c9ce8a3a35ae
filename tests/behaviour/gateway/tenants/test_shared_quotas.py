"""Cells and stored bytes of a tenant: at the limit and one past it, over all of its runtimes and connections."""

from __future__ import annotations

import pytest
from tests.support.gateway.world import User, World
from tests.support.serving.plain import Line
from tests.waiting import until

from cenote.gateway.values.quota import Quota
from cenote_proto.v1 import failure_pb2, jail_pb2, runtime_pb2
from cenote_security.errors import QuotaExceededError
from cenote_worker.wire.failures import to_error

WAITS = "import time\nfor _ in range(6000): time.sleep(0.01)"


def opened(user: User, count: int) -> list[Line]:
    """Connections to separate runtimes."""
    lines = [user.line(user.create(f"r{number}"), f"client {number}") for number in range(count)]
    for line in lines:
        line.welcome()
    return lines


def refusal(frame: runtime_pb2.ServerFrame) -> QuotaExceededError:
    assert failure_pb2.Failure.QUOTA_EXCEEDED == frame.failure.kind
    error = to_error(frame.failure)
    assert isinstance(error, QuotaExceededError)
    return error


def under_way(line: Line) -> int:
    """A cell that runs until it is interrupted."""
    call = line.cell(f"print('begun', flush=True)\n{WAITS}", key="long")
    line.until(lambda frame: frame.call == call and frame.HasField("output"))
    return call


def test_cells_are_counted_over_all_runtimes(either: World) -> None:
    """At the limit they run; one past it is refused with the usage and what to do, until one has ended."""
    acme, rival = either.user("acme"), either.user("rival")
    either.stores.quotas.set_limit(acme.tenant, Quota.CELLS, 2)
    one, two, three = opened(acme, 3)
    first, second = under_way(one), under_way(two)
    error = refusal(three.answer(three.cell("ran = True")))
    assert ("cells", 2, 1, 2) == (error.quota, error.used, error.asked, error.limit)
    assert "wait for running cells to end" in str(error)
    (others,) = opened(rival, 1)
    assert others.run("1").success
    one.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    assert not one.answer(first).result.success
    assert "NameError" == three.run("ran").error.type
    two.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    assert not two.answer(second).result.success


def test_a_cell_that_is_sent_again_is_not_counted_again(world: World) -> None:
    """At the limit its client may send it again: it is the same cell."""
    acme = world.user("acme")
    world.stores.quotas.set_limit(acme.tenant, Quota.CELLS, 1)
    runtime = acme.create("etl")
    first = acme.line(runtime)
    first.welcome()
    under_way(first)
    again = acme.line(runtime)
    again.welcome()
    call = again.cell(f"print('begun', flush=True)\n{WAITS}", key="long")
    again.until(lambda frame: frame.call == call and frame.HasField("output"))
    again.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    assert "KeyboardInterrupt" == again.answer(call).result.error.type
    assert again.run("1").success


@pytest.mark.parametrize("end", ["import os; os._exit(1)", "raise SystemExit", "1/0"])
def test_however_a_cell_ends_it_counts_no_more(world: World, end: str) -> None:
    """With its jail, with an error, or normally."""
    acme = world.user("acme")
    world.stores.quotas.set_limit(acme.tenant, Quota.CELLS, 1)
    (line,) = opened(acme, 1)
    for _ in range(2):
        assert line.answer(line.cell(end)).HasField("result")
    assert line.run("1").success


def test_none_at_all_is_a_limit_too(world: World) -> None:
    """Raising the limit admits cells without a restart."""
    acme = world.user("acme")
    world.stores.quotas.set_limit(acme.tenant, Quota.CELLS, 0)
    (line,) = opened(acme, 1)
    assert 0 == refusal(line.answer(line.cell("1", key="once"))).limit
    world.nodes.limit({acme.tenant: {}})
    assert line.run("1", key="once").success


def test_shared_values_are_counted(either: World) -> None:
    """Exactly the limit may be stored; one byte more is refused, and a release frees space."""
    acme = either.user("acme")
    sized = acme.share(acme.create("first"), "b'x' * 100_000")
    size = acme.reference(sized).size
    either.stores.quotas.set_limit(acme.tenant, Quota.STORED, 2 * size)
    second = acme.create("second")
    kept = acme.share(second, "b'x' * 100_000")
    line = acme.line(second)
    line.welcome()
    error = refusal(line.answer(line.send(share=runtime_pb2.Share(name="shared"))))
    assert ("stored", 2 * size, size, 2 * size) == (error.quota, error.used, error.asked, error.limit)
    acme.hold(kept)
    acme.release(kept)
    assert line.answer(line.send(share=runtime_pb2.Share(name="shared"))).shared.reference


def test_values_on_their_way_are_counted(world: World) -> None:
    """From their announcement until they have arrived, or their connection has ended."""
    acme = world.user("acme")
    world.stores.quotas.set_limit(acme.tenant, Quota.STORED, 1_000_000)
    runtime = acme.create("etl")
    line, other = acme.line(runtime, "one"), acme.line(runtime, "two")
    line.welcome()
    other.welcome()

    assert announced(line, 600_000) is None
    refused = announced(other, 400_001)
    assert refused is not None
    assert 600_000 == refusal(refused).used
    assert announced(other, 400_000) is None
    line.cut()
    until(lambda: announced(other, 500_000) is None)


def announced(line: Line, size: int) -> runtime_pb2.ServerFrame | None:
    """How it was refused, if it was: before the answer to the request that was sent after it."""
    content = jail_pb2.Payload(attached=True, size=size, count=1)
    call = line.send(injection=runtime_pb2.Injection(values=content, names=["big"]))
    cell = line.cell("1")
    first = line.until(lambda frame: frame.call in (call, cell) and not frame.HasField("output"))
    if first.call == cell:
        return None
    line.answer(cell)
    return first
