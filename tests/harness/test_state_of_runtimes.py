"""`runtime.state` of real runtimes: embedded, synchronous and not, with several authors."""

from __future__ import annotations

from tests.harness.lines import Line

from cenote.runtime import AsyncPythonRuntime, PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy

SMALL = SandboxPolicy(preload=())


def test_a_runtime_tells_its_steps() -> None:
    """Those of all its authors, to each of them."""
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
    """Has no jail yet, and needs none for that."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        assert ((), 0) == (runtime.state.steps, runtime.state.head)
        assert not runtime.core.running


async def test_the_asynchronous_face_has_the_same() -> None:
    """Without waiting."""
    async with AsyncPythonRuntime(sandbox=SMALL) as runtime:
        await runtime.execute("x = 1")
        assert ["x = 1"] == [step.code for step in runtime.state.steps]


def test_a_description_says_what_was_live() -> None:
    """Types and shapes, at the steps that it was asked for behind."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        runtime.execute("x = [1, 2]")
        runtime.describe()
        runtime.execute("x = 'text'")
        runtime.describe()
        found = [(each.name, each.type) for step in (1, 2) for each in runtime.state.at(step).variables]
    assert [("x", "list"), ("x", "str")] == found


def test_a_closed_runtime_can_be_asked() -> None:
    """What has happened stays true."""
    with PythonRuntime(sandbox=SMALL) as runtime:
        runtime.execute("x = 1")
    assert ["x = 1"] == [step.code for step in runtime.state.steps]


def test_the_program_of_a_slice_gives_the_value_again() -> None:
    """In a fresh runtime that begins with the same values, without the steps that it does not need."""
    line = Line("raw")
    line.run("def clean(d):\n    return [each for each in d if each]", writes=["clean"])
    line.run("noise = clean", reads=["clean"], writes=["noise"])
    line.run("df = clean(raw)", reads=["clean", "raw"], writes=["df"])
    line.run("del noise", deletes=["noise"])
    line.run("total = sum(df)", reads=["df"], writes=["total"])
    found = line.state.slice("total")
    assert [1, 3, 5] == [step.number for step in found.steps]
    with PythonRuntime(sandbox=SMALL, variables=[Variable("raw", [1, 0, 2])]) as runtime:
        assert runtime.execute(found.program).success
        assert (3, {"raw", "clean", "df", "total"}) == (
            runtime.retrieve("total"),
            {info.name for info in runtime.describe()},
        )
