"""Injected names that cells have deleted since: they can be injected again, and withdrawn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.remote.small_platform import TOKEN, SmallPlatform

from cenote.errors import NameExistsError, UnknownNameError
from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Type, Variable
from cenote_security.policy import SandboxPolicy

Make = Callable[..., PythonRuntime]
PLAIN = SandboxPolicy(preload=())


class Point:
    """A class of the client's."""


def one() -> int:
    return 1


def two() -> int:
    return 2


@pytest.fixture(scope="module")
def platform() -> Iterator[SmallPlatform]:
    platform = SmallPlatform().start()
    yield platform
    platform.close()


@pytest.fixture(params=["here", "on a platform"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made = list[PythonRuntime]()

    def runtime(**more: Any) -> PythonRuntime:
        if request.param == "here":
            made.append(PythonRuntime(sandbox=PLAIN, **more))
        else:
            address = request.getfixturevalue("platform").address
            made.append(PythonRuntime(address=address, token=TOKEN, sandbox=PLAIN, **more))
        return made[-1]

    yield runtime
    for each in made:
        each.close()


def value(runtime: PythonRuntime, code: str) -> str | None:
    result = runtime.execute(code)
    assert result.error is None, result.error
    return result.value


@pytest.mark.parametrize(
    "deletion",
    [
        "del x",
        "globals().pop('x')",
        "exec('del x')",
        "import os as x; del x",
    ],
)
def test_what_cells_have_deleted_is_injected_again(make: Make, deletion: str) -> None:
    runtime = make(variables=[Variable("x", 1)])
    value(runtime, deletion)
    runtime.inject(Variable("x", 2))
    assert "2" == value(runtime, "x")
    with pytest.raises(NameExistsError):
        runtime.inject(Variable("x", 2))
    runtime.reset()
    assert "2" == value(runtime, "x")


@pytest.mark.parametrize("deletion", ["del x", "exec('del x')"])
def test_what_cells_have_deleted_is_withdrawn(make: Make, deletion: str) -> None:
    """Later jails begin without it. It can be withdrawn once."""
    runtime = make()
    runtime.inject(Variable("x", 1))
    value(runtime, deletion)
    runtime.delete("x")
    assert "x" not in runtime.core.items
    with pytest.raises(UnknownNameError):
        runtime.delete("x")
    runtime.reset()
    assert "False" == value(runtime, "'x' in globals()")
    runtime.inject(Variable("x", 3))
    assert "3" == value(runtime, "x")


def test_a_rollback_takes_names_away_and_brings_them_back(make: Make) -> None:
    runtime = make()
    value(runtime, "y = 1")
    before = runtime.snapshot()
    runtime.inject(Variable("x", 1))
    after = runtime.snapshot()
    runtime.rollback(before)
    runtime.inject(Variable("x", 2))
    assert "2" == value(runtime, "x")
    runtime.rollback(before)
    runtime.delete("x")
    with pytest.raises(UnknownNameError):
        runtime.delete("x")
    runtime.rollback(after)
    with pytest.raises(NameExistsError):
        runtime.inject(Variable("x", 3))
    assert "1" == value(runtime, "x")


@pytest.mark.parametrize("name", ["f", "_f"])
def test_a_function_that_is_there_stays_what_it_is(make: Make, name: str) -> None:
    """A refusal changes neither the function nor the start of later jails."""
    runtime = make(functions=[Function(one, name=name, host=True)])
    value(runtime, "1")
    with pytest.raises(NameExistsError):
        runtime.inject(Function(two, name=name, host=True))
    assert "1" == value(runtime, f"{name}()")
    assert [name] == list(runtime.core.items)
    runtime.reset()
    assert "1" == value(runtime, f"{name}()")
    value(runtime, f"del {name}")
    runtime.inject(Function(two, name=name, host=True))
    assert "2" == value(runtime, f"{name}()")


def test_a_class_that_is_there_is_refused(make: Make) -> None:
    runtime = make(types=[Type(Point)])
    with pytest.raises(NameExistsError):
        runtime.inject(Type(Point))
    value(runtime, "del Point")
    runtime.inject(Type(Point))
    assert "'Point'" == value(runtime, "Point.__name__")


def test_an_equal_value_that_a_cell_has_made_is_in_the_way(make: Make) -> None:
    """Small numbers and texts are one object wherever they are."""
    runtime = make()
    value(runtime, "n = 1; t = ''; b = True")
    for name, same in (("n", 1), ("t", ""), ("b", True)):
        with pytest.raises(NameExistsError):
            runtime.inject(Variable(name, same))


def test_a_branch_goes_its_own_way() -> None:
    runtime = PythonRuntime(variables=[Variable("x", 1)], sandbox=PLAIN)
    value(runtime, "del x")
    branch = runtime.fork()
    try:
        branch.inject(Variable("x", 2))
        assert "2" == value(branch, "x")
        runtime.delete("x")
        runtime.reset()
        assert "False" == value(runtime, "'x' in globals()")
        value(branch, "del x")
        branch.delete("x")
        branch.reset()
        assert "False" == value(branch, "'x' in globals()")
    finally:
        branch.close()
        runtime.close()


def test_a_stored_runtime_takes_what_cells_have_deleted(tmp_path: Path) -> None:
    """It has the state, not what clients of former processes had injected."""
    with PythonRuntime.open(tmp_path, "stored", sandbox=PLAIN) as runtime:
        runtime.inject(Variable("x", 1))
        value(runtime, "del x")
    with PythonRuntime.open(tmp_path, "stored", sandbox=PLAIN) as runtime:
        with pytest.raises(UnknownNameError):
            runtime.delete("x")
        runtime.inject(Variable("x", 2))
        assert "2" == value(runtime, "x")


def test_of_two_that_were_injected_together_one_goes(make: Make) -> None:
    runtime = make()
    shared = [1]
    runtime.inject(Variable("a", shared), Variable("b", shared))
    value(runtime, "del a")
    runtime.delete("a")
    with pytest.raises(UnknownNameError):
        runtime.delete("a")
    runtime.inject(Variable("a", 2))
    assert "(2, [1])" == value(runtime, "a, b")


async def test_a_coroutine_injects_and_withdraws_alike() -> None:
    async with AsyncPythonRuntime(variables=[Variable("x", 1)], sandbox=PLAIN) as runtime:
        await runtime.execute("del x")
        await runtime.inject(Variable("x", 2))
        with pytest.raises(NameExistsError):
            await runtime.inject(Variable("x", 2))
        await runtime.execute("del x")
        await runtime.delete("x")
        with pytest.raises(UnknownNameError):
            await runtime.delete("x")
        await asyncio.to_thread(runtime.core.reset)
        assert "False" == (await runtime.execute("'x' in globals()")).value
