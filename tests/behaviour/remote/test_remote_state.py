"""`runtime.state` of runtimes on a platform: each client reads the same record."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.remote.small_platform import SmallPlatform

from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable
from cenote_worker.history.messages import MAX_EXCERPT


def test_a_client_reads_its_steps(platform: SmallPlatform, connect: Callable[..., PythonRuntime]) -> None:
    """As with embedded runtimes: the initial state is no step, external calls are recorded."""
    double = Function(_double, host=True, effect="pure")
    runtime = connect(platform, variables=[Variable("raw", [1])], functions=[double])
    runtime.execute("x = _double(21)\nx", cause="call-7")
    runtime.update_variable("raw", [2])
    first, second = runtime.state.history
    assert (1, "42", [("_double", "pure")]) == (
        first.number,
        first.value,
        [(call.target, call.effect) for call in first.host_calls],
    )
    assert "call-7" == first.cause
    assert (2, "injection", ("raw",)) == (second.number, second.kind, second.names)
    assert {"raw", "_double"} == {each.name for each in runtime.state.at(0).variables}


def _double(x: int) -> int:
    return 2 * x


def test_a_state_is_read_on(platform: SmallPlatform, connect: Callable[..., PythonRuntime]) -> None:
    """When it is requested again, or refreshed; not before."""
    runtime = connect(platform)
    runtime.execute("x = 1")
    state = runtime.state
    runtime.execute("y = 1")
    assert 1 == len(state.steps)
    state.refresh()
    assert ["x = 1", "y = 1"] == [step.code for step in state.steps]


def test_a_long_history_is_read_in_pieces(
    platform: SmallPlatform, connect: Callable[..., PythonRuntime]
) -> None:
    """No piece exceeds the message size limit."""
    runtime = connect(platform)
    comment = "#" + "x" * 2**20
    for number in range(6):
        runtime.execute(f"{number}\n{comment}")
    assert 6 * len(comment) > MAX_EXCERPT
    assert list("012345") == [step.code[0] for step in runtime.state.steps]


async def test_the_asynchronous_face(platform: SmallPlatform, connect: Callable[..., PythonRuntime]) -> None:
    """It reads new events too."""
    made = connect(platform)
    runtime = AsyncPythonRuntime.over(made.core)
    await runtime.execute("x = 1")
    assert ["x = 1"] == [step.code for step in runtime.state.steps]
