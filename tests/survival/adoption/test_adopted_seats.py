"""The author of a request, and the client that its jail calls, after its process was killed."""

from __future__ import annotations

from queue import SimpleQueue

import pytest
from tests.support.adoption.fixtures import Node, join, value
from tests.waiting import PATIENCE

from cenote_worker.execution.results import JailStatus, LiveOutput
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.runtime import HostedRuntime

SLOW = "print('begun')\nimport time\ntime.sleep(600)"


def status(runtime: HostedRuntime) -> JailStatus:
    told: SimpleQueue[JailStatus | None] = SimpleQueue()
    runtime.status(told.put)
    found = told.get(timeout=PATIENCE)
    assert found is not None
    return found


@pytest.mark.usefixtures("patient")
def test_a_running_cell_stays_its_authors(node: Node) -> None:
    """Status and result name the author; only a request with its key and that author can interrupt it."""
    victim = node.victim()
    victim.tell("execute", "slow", code=SLOW, author="ana")
    victim.heard("slow", "begun")
    victim.kill()
    runtime = node.adopt()
    assert (1, "ana") == ((now := status(runtime)).step, now.author)
    assert not runtime.attach("ben", private=False).interrupt()
    listener = join(runtime, "slow")
    runtime.join(RequestKey(text="slow"), join(runtime, "slow"))(waiting=False)
    result = listener.result()
    assert ("interrupt", "ana") == (result.error and result.error.reason, result.author)
    assert "2" == value(runtime, "1 + 1")


def test_those_who_look_on_see_what_was_printed_before(node: Node) -> None:
    """The successor has the output of the cell that runs, from its start."""
    victim = node.victim()
    victim.tell("execute", "slow", code=SLOW, author="ana")
    victim.heard("slow", "begun")
    victim.kill()
    told: SimpleQueue[LiveOutput] = SimpleQueue()
    runtime = node.adopt()
    runtime.live_output(LiveOutput(), told.put)
    found = told.get(timeout=PATIENCE)
    assert (1, "ana", (("stdout", "begun\n"),), 0) == (found.step, found.author, found.pieces, found.missed)


def test_an_outcome_keeps_its_author(node: Node) -> None:
    """A client that asks for the result of a cell by its key gets its author too."""
    victim = node.victim()
    victim.tell("execute", "one", code="1", author="ana")
    victim.value("one")
    victim.kill()
    assert "ana" == join(node.adopt(), "one").result().author


def test_an_offer_keeps_its_client(node: Node) -> None:
    """The successor knows which client carries out the functions in the namespace."""
    victim = node.victim()
    victim.tell("offer", "offer", name="ask")
    victim.value("offer")
    victim.kill()
    assert ["a client"] == [injection.client for injection in node.adopt().noted.all()]
