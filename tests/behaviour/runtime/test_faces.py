"""The two APIs of a runtime: the same methods, the same answers."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from typing import Any, get_overloads

import pytest
from tests.support.escape.arena import worker_of
from tests.support.processes import kill
from tests.waiting import PATIENCE, until_async

from cenote.harness import Patch
from cenote.runtime import AsyncPythonRuntime, PythonRuntime, Variable
from cenote.security import FunctionRule, SecurityChecker
from cenote_security.errors import NotCopiedError, NotTransferableError, UnknownNameError, UsageError
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.usefixtures("where")


def methods(face: type) -> dict[str, str]:
    """Public names and the arguments they take."""
    found = {}
    for name, member in inspect.getmembers(face):
        if name.startswith("_") or name in ("over", "holding"):
            continue
        found[name] = str(list(inspect.signature(member).parameters)) if callable(member) else "property"
    return found


def test_both_faces_have_the_same_methods() -> None:
    """Both APIs have the same methods, with the same arguments."""
    assert methods(PythonRuntime) == methods(AsyncPythonRuntime)


def test_both_faces_take_the_same_arguments() -> None:
    """A script moves from one to the other by adding await."""
    assert inspect.signature(PythonRuntime) == inspect.signature(AsyncPythonRuntime)


@pytest.mark.parametrize("face", [PythonRuntime, AsyncPythonRuntime])
def test_a_type_checker_knows_what_a_fork_gives(face: type[Any]) -> None:
    """One runtime, or a list that can be unpacked, depending on the literal count."""
    kinds = [
        (form.__annotations__["count"], form.__annotations__["return"]) for form in get_overloads(face.fork)
    ]
    assert [("Literal[1]", "Self"), ("Several", "list[Self]"), ("int", "Self | list[Self]")] == kinds


@pytest.mark.at("embedded", "platform", "relayed")
async def test_the_async_face() -> None:
    """Every call, awaited."""
    async with AsyncPythonRuntime(variables=[Variable("a", 1)]) as runtime:
        heard: list[str] = []
        result = await runtime.execute("print(a)\na + 1", on_output=lambda stream, text: heard.append(text))
        assert ("2", "1\n", "1\n") == (result.value, result.stdout, "".join(heard))
        await runtime.inject(Variable("b", [1, 2]))
        await runtime.update_variable("a", 5)
        assert [1, 2] == await runtime.retrieve("b")
        assert 5 == await runtime.retrieve("a")
        reference = await runtime.share("b")
        await runtime.update_variable("a", reference)
        assert [1, 2] == await runtime.retrieve("a")
        assert {"a", "b"} == {info.name for info in await runtime.describe()}
        await runtime.delete("b")
        with pytest.raises(UnknownNameError):
            await runtime.retrieve("b")
        assert (await runtime.status()).processes >= 1
        assert not await runtime.interrupt()
        await runtime.reset()
        assert "[1, 2]" == (await runtime.execute("a")).value


@pytest.mark.at("embedded", "platform", "relayed")
async def test_cancelling_an_execute_interrupts_the_cell() -> None:
    """The cell does not continue without its caller; the runtime can be used at once."""
    async with AsyncPythonRuntime() as runtime:
        started = asyncio.Event()
        task = asyncio.create_task(
            runtime.execute("print('go')\nimport time\ntime.sleep(600)", on_output=lambda *_: started.set())
        )
        await asyncio.wait_for(started.wait(), PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "2" == (await asyncio.wait_for(runtime.execute("1 + 1"), PATIENCE)).value


@pytest.mark.at("embedded", "platform")
@pytest.mark.slow
async def test_many_runtimes_at_once() -> None:
    """Twenty runtimes started together all answer."""
    runtimes = [AsyncPythonRuntime() for _ in range(20)]
    try:
        results = await asyncio.gather(*(runtime.execute("6 * 7") for runtime in runtimes))
        assert ["42"] * 20 == [result.value for result in results]
    finally:
        for runtime in runtimes:
            await runtime.close()


async def test_death_between_cells_is_a_result_here_too() -> None:
    """Both APIs report a jail that died between cells in the next result, and raise nothing."""
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(snapshots="none")) as runtime:
        await runtime.execute("1")
        kill(worker_of(runtime))
        await until_async(lambda: not runtime.core.running)
        assert "lost" == (await runtime.execute("1")).state
        assert "1" == (await runtime.execute("1")).value


async def _nobody_awaits(stream: str, text: str) -> None: ...


@pytest.mark.at("embedded", "platform")
@pytest.mark.parametrize("on_output", [5, _nobody_awaits])
def test_an_on_output_that_is_no_plain_function(on_output: Any) -> None:
    """It is refused before anything runs, by both APIs: otherwise output would be lost silently."""
    with PythonRuntime() as runtime, pytest.raises(UsageError, match="plain function"):
        runtime.execute("print(1)", on_output=on_output)

    async def run() -> None:
        async with AsyncPythonRuntime() as runtime:
            await runtime.execute("print(1)", on_output=on_output)

    with pytest.raises(UsageError, match="plain function"):
        asyncio.run(run())


def test_results_are_handed_on() -> None:
    """A result, with its cell's reads and writes, can be sent to another process or copied."""
    with PythonRuntime(variables=[Variable("a", 1)]) as runtime:
        result = runtime.execute("b = [a]\nb")
    assert result == pickle.loads(pickle.dumps(result)) == copy.deepcopy(result)
    trace = pickle.loads(pickle.dumps(result)).trace
    assert trace == result.trace
    with pytest.raises(TypeError):
        trace.reads["name:a"] = "another"


def test_what_has_its_place_is_not_copied() -> None:
    """Pickling or copying a handle is refused by a TypeError, as is usual; answers can be pickled."""
    with PythonRuntime() as runtime:
        runtime.execute("a = 1")
        step, reference = runtime.state.steps[0], runtime.share("a")
        assert step == pickle.loads(pickle.dumps(step))
        kept = {runtime: "fork", reference: "inject it", runtime.state: "steps", runtime.files: "fork"}
        for handle, instead in {**kept, AsyncPythonRuntime.over(runtime.core): "fork"}.items():
            for hand_on in (pickle.dumps, copy.deepcopy):
                with pytest.raises(TypeError, match=f"cannot be pickled or copied: .*{instead}") as caught:
                    hand_on(handle)
                assert isinstance(caught.value, NotCopiedError)
        with pytest.raises(NotCopiedError):
            copy.copy(reference)
        with pytest.raises(NotTransferableError, match=r"a Variable of its own .* that has it$"):
            runtime.inject(Variable("both", [reference]))


def test_a_runtime_tells_its_name() -> None:
    """The given name, or the empty one."""
    named = PythonRuntime(name="analysis")
    assert ("analysis", "") == (named.name, PythonRuntime().name)


@pytest.mark.parametrize("checker", [None, SecurityChecker([FunctionRule(["eval"])])])
def test_a_byte_order_mark(checker: SecurityChecker | None) -> None:
    """Code saved by an editor on Windows runs, as it does with `python`; spans refer to the step's text."""
    with PythonRuntime(security_checker=checker) as runtime:
        failed = runtime.execute("\ufeffa = 1; b = a / 0")
        assert ("ZeroDivisionError", 11) == (failed.error.type, failed.error.span.column)
        runtime.execute("b = 2")
        state = runtime.state
        assert "a = 1; b = a / 0" == state.steps[0].code
        state.apply(state.plan(Patch.replace_step(1, "\ufeffa = 5")))
        assert ("a = 5", "(5, 2)") == (runtime.state.steps[0].code, runtime.execute("a, b").value)
