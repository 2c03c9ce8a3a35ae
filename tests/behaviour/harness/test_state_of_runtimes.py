"""`runtime.state` of real runtimes: embedded, synchronous and asynchronous, with several authors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.harness.lines import Line

from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.usefixtures("where")

SMALL = SandboxPolicy(preload=())
BARE = SandboxPolicy(preload=(), snapshots="none")


def test_a_runtime_tells_its_steps() -> None:
    """Each author sees the steps of all authors."""
    with PythonRuntime(sandbox=SMALL, variables=[Variable("raw", [1])]) as runtime:
        ana = runtime.attach("ana")
        runtime.execute("x = 1")
        ana.execute("x + 1")
        for state in (runtime.state, ana.state):
            assert [("x = 1", ""), ("x + 1", "ana")] == [(step.code, step.author) for step in state.steps]
        assert (None, ["raw"]) == (
            runtime.state.at(0).step,
            [each.name for each in runtime.state.at(0).variables],
        )


def test_a_runtime_that_has_run_nothing() -> None:
    """It has no jail yet, and needs none for that."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        assert ((), 0) == (runtime.state.steps, runtime.state.head)
        assert not runtime.core.running


async def test_the_asynchronous_face_has_the_same() -> None:
    """Without waiting."""
    async with AsyncPythonRuntime(sandbox=SMALL) as runtime:
        await runtime.execute("x = 1")
        assert ["x = 1"] == [step.code for step in runtime.state.steps]


def test_a_description_says_what_was_live() -> None:
    """Types and shapes, at the steps after which they were described."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        runtime.execute("x = [1, 2]")
        runtime.describe()
        runtime.execute("x = 'text'")
        runtime.describe()
        found = [(each.name, each.type) for step in (1, 2) for each in runtime.state.at(step).variables]
    assert [("x", "list"), ("x", "str")] == found


def test_a_closed_runtime_can_be_asked() -> None:
    """The history stays available."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        runtime.execute("x = 1")
    assert ["x = 1"] == [step.code for step in runtime.state.steps]


def test_a_step_says_what_kinds_of_values_it_left() -> None:
    """Without a call of `describe`."""
    with PythonRuntime(sandbox=BARE) as runtime:
        runtime.execute("x = [1, 2]\ny = 'text'")
        runtime.execute("x.append(3)\ndel y")
        found = [
            [(each.name, each.type, each.shape) for each in runtime.state.at(step).variables]
            for step in (1, 2)
        ]
    assert [[("x", "list", (2,)), ("y", "str", None)], [("x", "list", (3,))]] == found


@pytest.mark.at("embedded", "platform")
def test_the_program_of_a_slice_is_verified() -> None:
    """In a fresh runtime with the same injected values, and without external calls."""
    calls: list[int] = []

    def price(amount: int) -> int:
        calls.append(amount)
        return amount * 2

    raw, host = Variable("raw", [1, 0, 2]), Function(price, host=True)
    with PythonRuntime(sandbox=BARE, variables=[raw], functions=[host]) as runtime:
        runtime.execute("rows = list(raw)\nunused = [9]\nscale = 2", cause="call-1")
        runtime.execute("noise = unused", cause="call-2")
        runtime.execute("total = sum(rows) * scale\nprint(total)\ncost = price(total)", cause="call-3")
        found = runtime.state.slice("cost")
        verified = runtime.state.verify(found)
    assert ("verified", "") == (verified.outcome, verified.reason)
    assert (("call-1", "call-3"), [6]) == (found.model_calls, calls)
    assert "unused" not in found.source
    assert verified.slice.source == found.source


def test_a_program_goes_through_a_file_that_a_cell_has_written() -> None:
    """A magic applies to the rest of its own cell, and not to the program's other steps."""
    with PythonRuntime(sandbox=BARE) as runtime:
        runtime.execute("%%writefile shop.py\ndef net(x):\n    return x * 2\n")
        runtime.execute("import shop\ncost = shop.net(21)")
        verified = runtime.state.verify(runtime.state.slice("cost"))
    assert ("verified", "") == (verified.outcome, verified.reason)


@pytest.mark.at("embedded", "platform")
def test_a_program_goes_through_files_that_a_client_has_written() -> None:
    """Before the first step and later; not where a step had found the file unwritten or missing."""
    with PythonRuntime(sandbox=BARE) as runtime:
        runtime.files.write("early.csv", b"20")
        runtime.execute("early = int(open('early.csv').read())")
        runtime.files.write("data/late.csv", b"1")
        runtime.execute("cost = early + int(open('data/late.csv').read())")
        verified = runtime.state.verify(runtime.state.slice("cost"))
        assert ("verified", "", 21) == (verified.outcome, verified.reason, runtime.retrieve("cost"))
        runtime.files.write("early.csv", b"30", overwrite=True)
        runtime.execute("cost += int(open('early.csv').read())")
        refused = runtime.state.verify(runtime.state.slice("cost"))
    assert "unverifiable" == refused.outcome
    assert "wrote early.csv, and a step before it may have found another, or none" in refused.reason


def test_a_program_that_does_not_make_the_value_is_told_so() -> None:
    """Also where it succeeds: nothing is raised."""
    with PythonRuntime(sandbox=BARE) as runtime:
        runtime.execute("cost = 1")
        found = replace(runtime.state.slice("cost"), source="other = 2", whole=True)
        verified = runtime.state.verify(found)
    assert ("different", "its program makes no `cost`") == (verified.outcome, verified.reason)


@pytest.mark.at("embedded", "platform")
async def test_a_slice_that_cannot_be_verified_says_why() -> None:
    """Unseeded random values, and values that no trusted process rebuilds; but each step gets the injected values."""
    async with AsyncPythonRuntime(sandbox=BARE, variables=[Variable("raw", 1)]) as runtime:
        await runtime.execute("import random\ndrawn = random.random()")
        await runtime.execute("old = raw + 1")
        await runtime.execute("class A: pass\na = A()")
        await runtime.update_variable("raw", 2)
        await runtime.execute("older = old\nnew = raw")
        state = runtime.state
        found = {name: await state.verify(state.slice(name)) for name in ("drawn", "a")}
        old, new = [await state.verify(state.slice(name)) for name in ("older", "new")]
    assert ("verified", "verified") == (old.outcome, new.outcome)
    assert {"unverifiable"} == {each.outcome for each in found.values()}
    reasons = [each.reason for each in found.values()]
    assert "random numbers that no step has seeded" in reasons[0]
    assert "class __main__.A" in reasons[1]


def test_the_program_of_a_slice_gives_the_value_again() -> None:
    """In a fresh runtime that begins with the same values, without unnecessary steps."""
    line = Line("raw")
    line.run("def clean(d):\n    return [each for each in d if each]", writes=["clean"])
    line.run("noise = clean", reads=["clean"], writes=["noise"])
    line.run("df = clean(raw)", reads=["clean", "raw"], writes=["df"])
    line.run("del noise", deletes=["noise"])
    line.run("total = sum(df)", reads=["df"], writes=["total"])
    found = line.state.slice("total")
    assert [1, 3, 5] == [step.number for step in found.steps]
    with PythonRuntime(sandbox=SMALL, variables=[Variable("raw", [1, 0, 2])]) as runtime:
        assert runtime.execute(found.source).success
        assert (3, {"raw", "clean", "df", "total"}) == (
            runtime.retrieve("total"),
            {info.name for info in runtime.describe()},
        )
