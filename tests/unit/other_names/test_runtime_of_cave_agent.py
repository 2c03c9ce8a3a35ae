"""IPythonRuntime and IPyKernelRuntime: the CaveAgent library's methods, in a jail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from enum import Enum
from typing import Optional

import pytest
from tests.waiting import until_async

from cenote.cave_agent.runtime import Function, PreemptibleRuntime, Runtime, Type, Variable
from cenote.runtime import CellError, ErrorFeedbackMode, IPyKernelRuntime, IPythonRuntime
from cenote.security import ImportRule, SecurityChecker, SecurityError
from cenote_security.errors import UsageError


@pytest.fixture
async def runtime() -> AsyncIterator[IPythonRuntime]:
    async with IPythonRuntime() as runtime:
        yield runtime


def double(x: int) -> int:
    """Twice x."""
    return 2 * x


class Color(Enum):
    RED = 1


class Shape:
    def area(self, scale: Optional[int] = None) -> float:  # noqa: UP045 (as users of both write it)
        """Its area."""
        return 1.0


async def test_a_cell_gives_one_text_as_a_notebook_shows_it(runtime: IPythonRuntime) -> None:
    """Both streams in writing order, then the value."""
    result = await runtime.execute("import sys\nprint('a'); print('b', file=sys.stderr); print('c')\n1 + 1")
    assert (True, "a\nb\nc\n2\n", False) == (result.success, result.stdout, result.state_lost)


async def test_a_failure_is_an_exception_in_the_result(runtime: IPythonRuntime) -> None:
    """Of Python's own class by that name, otherwise a CellError; the text has the traceback."""
    failed = await runtime.execute("1/0")
    assert isinstance(failed.error, ZeroDivisionError)
    assert "Traceback" in (failed.stdout or "")
    own = await runtime.execute("class OwnError(Exception): pass\nraise OwnError('x')")
    assert isinstance(own.error, CellError)
    assert ("OwnError", "OwnError: x") == (own.error.type, str(own.error))
    odd = await runtime.execute("raise UnicodeDecodeError('utf-8', b'', 0, 1, 'no')")
    assert isinstance(odd.error, CellError)


async def test_a_jail_names_no_class_that_is_not_an_error(runtime: IPythonRuntime) -> None:
    """The jail chooses an error's name, and Python's functions have names as well."""
    result = await runtime.execute("class print(Exception): pass\nraise print('x')")
    assert isinstance(result.error, CellError)


async def test_minimal_feedback_is_one_line() -> None:
    async with IPythonRuntime(error_feedback_mode=ErrorFeedbackMode.MINIMAL) as runtime:
        assert "ZeroDivisionError: division by zero" == (await runtime.execute("1/0")).stdout


async def test_refused_code_gives_a_security_error() -> None:
    async with IPythonRuntime(security_checker=SecurityChecker([ImportRule({"os"})])) as runtime:
        assert isinstance((await runtime.execute("import os")).error, SecurityError)


async def test_what_is_registered_is_there_in_the_next_cell(runtime: IPythonRuntime) -> None:
    """Including values registered in between, and one that was changed before it was sent."""
    runtime.inject_function(Function(double))
    runtime.inject_variable(Variable("n", 1))
    runtime.update_variable("n", 4)
    runtime.inject_into_namespace("hidden", [1])
    assert "8 [1]\n" == (await runtime.execute("print(double(n), hidden)")).stdout
    runtime.inject_type(Type(Color))
    runtime.inject_into_namespace("hidden", [2])
    assert "1 [2]\n" == (await runtime.execute("n = Color.RED.value\nprint(n, hidden)")).stdout
    assert 1 == await runtime.retrieve("n")
    assert double is await runtime.get_from_namespace("double")


async def test_reading_what_is_not_there_is_a_key_error(runtime: IPythonRuntime) -> None:
    """None is a value that a variable may have. Names made by code are not registered."""
    await runtime.execute("mine = None")
    assert await runtime.get_from_namespace("mine") is None
    with pytest.raises(KeyError, match="not bound"):
        await runtime.get_from_namespace("other")
    with pytest.raises(KeyError, match="not managed"):
        await runtime.retrieve("mine")


async def test_a_name_is_registered_once(runtime: IPythonRuntime) -> None:
    """All of a group or none of it, across functions, variables and types."""
    with pytest.raises(ValueError, match="already exists"):
        runtime.inject_resources(variables=[Variable("a", 1), Variable("a", 2)])
    runtime.inject_variable(Variable("a", 1))
    with pytest.raises(UsageError, match="already exists"):
        runtime.inject_into_namespace("a", 2)


async def test_a_value_keeps_its_type(runtime: IPythonRuntime) -> None:
    """Also when it has been None in between."""
    runtime.inject_variable(Variable("count", 1))
    runtime.update_variable("count", None)
    with pytest.raises(TypeError, match="Expected int, got str"):
        runtime.update_variable("count", "two")
    with pytest.raises(KeyError, match="does not exist"):
        runtime.update_variable("nothing", 1)


async def test_bind_unique_passes_over_names_that_code_has_made(runtime: IPythonRuntime) -> None:
    """It also skips registered ones; several at once get a name each."""
    await runtime.execute("_output_2 = 'mine'")
    runtime.inject_variable(Variable("_output_1", 0))
    names = await asyncio.gather(*(runtime.bind_unique("_output", str(i)) for i in range(3)))
    assert {"_output_3", "_output_4", "_output_5"} == set(names)
    assert "mine" == await runtime.get_from_namespace("_output_2")
    assert "_output_9" == await runtime.bind_unique("_output", "x", start=9)
    with pytest.raises(ValueError, match="positive integer"):
        await runtime.bind_unique("_output", "x", start=0)


async def test_reset_leaves_what_is_registered(runtime: IPythonRuntime) -> None:
    """With current values, hidden names too; a running cell ends first."""
    runtime.inject_variable(Variable("given", 1))
    runtime.update_variable("given", 2)
    name = await runtime.bind_unique("_output", "text")
    cell = asyncio.create_task(runtime.execute("made = 1\nimport time; time.sleep(0.05)\nprint('whole')"))
    await asyncio.sleep(0)
    await runtime.reset()
    assert "whole\n" == (await cell).stdout
    result = await runtime.execute(f"print(given, {name}, 'made' in globals())")
    assert "2 text False\n" == result.stdout


async def test_it_fits_the_protocols(runtime: IPythonRuntime) -> None:
    """The protocols of the library's agent; a cell can also be ended."""
    assert isinstance(runtime, Runtime)
    assert isinstance(runtime, PreemptibleRuntime)
    cell = asyncio.create_task(runtime.execute("print('in', flush=True)\nwhile True: pass"))
    await until_async(lambda: runtime.core.running and runtime.core.interrupt())
    assert isinstance((await cell).error, KeyboardInterrupt)


async def test_silence_ends_a_cell() -> None:
    """Its output so far stays; the state is kept, and the next cell runs at once."""
    async with IPyKernelRuntime(iopub_timeout=0.3) as runtime:
        result = await runtime.execute("kept = 1\nprint('begun')\nimport time; time.sleep(60)")
        assert not result.success
        assert "begun\n" == (result.stdout or "")[:6]
        assert "iopub_timeout" in (result.stdout or "")
        assert "next\n" == (await runtime.execute("print('next')")).stdout


async def test_a_runtime_that_was_stopped_starts_again() -> None:
    runtime = IPyKernelRuntime(variables=[Variable("n", 1)])
    assert "1\n" == (await runtime.execute("print(n)")).stdout
    await runtime.stop()
    assert "1\n" == (await runtime.execute("print(n)")).stdout
    await runtime.stop()


def test_descriptions_are_in_the_form_of_the_library() -> None:
    """Of registered objects, without hidden ones. No jail is started for them."""
    runtime = IPythonRuntime()
    assert "No functions available" == runtime.describe_functions()
    runtime.inject_resources(
        functions=[Function(double, "Doubles.")],
        variables=[Variable("n", 1, "A number.")],
        types=[Type(Color), Type(Shape), Type(Point, include_schema=False, include_doc=False)],
        bindings=[("hidden", 1)],
    )
    described = runtime.describe_functions().split("\n")
    assert ["  description: Doubles.", "  doc:", "    Twice x."] == described[1:]
    assert "- name: n\n  type: int\n  description: A number." == runtime.describe_variables()
    assert runtime.describe_types() == (
        "Color (Enum):\n  - RED = 1\nShape:\n  methods:\n"
        "    - area(scale: Optional[int] = None) -> float\n        Its area."
    )


class Point:
    x = 1
