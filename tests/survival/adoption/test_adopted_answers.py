"""Answers of a durable runtime whose process is killed before their states are stored."""

from __future__ import annotations

import pytest
from tests.support.adoption.fixtures import Node, join, value
from tests.support.adoption.supervising import JAIL, stored
from tests.support.hosted.listening import Heard

from cenote_security.errors import OutcomeUnknownError
from cenote_worker.runtime.keyed_requests import RequestKey

COUNTS = "x = globals().get('x', 0) + 1; print('ran', x)\nx"


def test_a_cell_whose_state_was_being_stored_does_not_run_again(node: Node) -> None:
    """Nor does a later cell: repeated requests get the recorded outcomes."""
    keeping = stored(node.folder / "store")
    victim = node.victim(how="stuck")
    victim.execute(COUNTS, "1")
    victim.wait_for(lambda report: "storing" in report)
    victim.execute(COUNTS, "2")
    victim.heard("2", "ran 2")
    victim.kill()
    runtime = node.adopt(keeping=keeping)
    for key in ("1", "2"):
        heard = join(runtime, key)
        result = heard.result()
        assert (key, int(key), f"ran {key}\n") == (result.value, result.step, result.stdout)
        assert f"ran {key}\n" == heard.printed
    assert "2" == value(runtime, "x")
    steps = [runtime.history.tree.get(number) for number in (1, 2, 3)]
    assert [(COUNTS, "1"), (COUNTS, "2"), ("x", "2")] == [(step.code, step.value) for step in steps]
    assert all(step.trace is not None for step in steps)


def test_a_cell_whose_jail_went_too_before_its_state_was_stored_does_not_run_again(node: Node) -> None:
    """Its client is informed that it did run."""
    keeping = stored(node.folder / "store")
    victim = node.victim(how="stuck")
    victim.execute(COUNTS, "1")
    victim.wait_for(lambda report: "storing" in report)
    victim.kill()
    node.descriptor_store.drop(JAIL)
    runtime = node.adopt(keeping=keeping)
    with pytest.raises(OutcomeUnknownError, match="it ran as step 1"):
        runtime.execute(COUNTS, None, Heard(), RequestKey(text="1"))
