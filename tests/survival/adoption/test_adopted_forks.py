"""Forks whose process is killed: a parent at an earlier state is restored, a branch is unchanged."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.support.adoption.fixtures import Node, value
from tests.support.adoption.supervising import NAME, POLICY, SpareJails
from tests.support.hosted.listening import NoHosts

from cenote_security.errors import UnknownRuntimeError
from cenote_worker.runtime.handover.stored_log import StoredHandoverLog
from cenote_worker.runtime.handover.takeover import adopt
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.branches import ForkOrder, copied
from cenote_worker.runtime.state.storage import NO_STORAGE

BRANCH = "branch"


@pytest.mark.parametrize("to", [1, "first"])
def test_killed_while_an_earlier_state_is_copied(node: Node, to: int | str) -> None:
    """The successor rolls forward first: clients never see the visited state."""
    victim = node.victim()
    for key, code in (("1", "x = [1]"), ("2", "x.append(2)")):
        victim.execute(code, key)
        victim.value(key)
        if key == "1":
            victim.tell("snapshot", "s", label="first")
            victim.value("s")
    victim.tell("visit", "v", to=to)
    victim.wait_for(lambda report: report.get("visiting"))
    victim.kill()
    runtime = node.adopt()
    assert "[1, 2]" == value(runtime, "x")
    assert 3 == runtime.step


def test_a_branch_is_taken_over(node: Node) -> None:
    """Before anything ran in it: with its state, and step numbers that follow the parent's."""
    for _ in range(2):
        node.spare()
    with ExitStack() as until:
        parent = node.begin(NO_STORAGE)
        for code in ("x = [1]", "x.append(2)"):
            value(parent, code)
        kept = StoredHandoverLog.fresh(
            BRANCH, POLICY, node.descriptor_store, SpareJails(node.descriptor_store)
        )
        with copied(parent, ForkOrder()) as copy:
            branch = copy.runtime(NoHosts(), name=BRANCH, start=kept.start_jail, legacy=kept)
            until.callback(branch.close)
            branch.start()
        assert branch.hand_over()
        found = StoredHandoverLog.found(
            BRANCH, POLICY, node.descriptor_store, SpareJails(node.descriptor_store)
        )
        heir: HostedRuntime = adopt(BRANCH, POLICY, NoHosts(), found)
        until.callback(heir.close)
        assert (2, 2) == (heir.step, heir.head)
        assert ("[1, 2]", 3) == (value(heir, "x"), heir.step)
        heir.close()
        with pytest.raises(UnknownRuntimeError):
            StoredHandoverLog.found(BRANCH, POLICY, node.descriptor_store, SpareJails(node.descriptor_store))
        assert "[1, 2]" == value(parent, "x")
    assert NAME == parent.name
