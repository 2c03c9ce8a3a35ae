"""DSPy's RLM, CodeAct and ProgramOfThought run their code in a runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from cenote import PythonRuntime, SandboxPolicy

dspy = pytest.importorskip("dspy", reason="needs DSPy: `make test-peers` has it")

from dspy.primitives.code_interpreter import (  # noqa: E402
    CodeExecutionError,
    CodeInterpreter,
    CodeInterpreterError,
    FinalOutput,
)
from dspy.utils import DummyLM  # noqa: E402

from cenote.adapters.dspy import CenoteInterpreter, InterpreterFactory  # noqa: E402


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(memory="512MiB")) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def interpreter(runtime: PythonRuntime) -> CenoteInterpreter:
    return CenoteInterpreter({"double": double}, runtime=runtime, timeout=1.0)


def double(x: int) -> int:
    """Twice x."""
    if x < 0:
        raise ValueError(f"{x} is negative")
    return 2 * x


def turns(*codes: str) -> Any:
    return DummyLM([{"reasoning": "so", "code": f"```python\n{code}\n```"} for code in codes])


def test_it_is_an_interpreter(interpreter: CenoteInterpreter) -> None:
    """It follows DSPy's protocol: names stay, output is text, no output is None."""
    assert isinstance(interpreter, CodeInterpreter)
    interpreter.start()
    interpreter.start()
    assert interpreter.execute("x = double(4)") is None
    assert "8\n9" == interpreter.execute("print(x)\nx + 1")


def test_what_code_submits(interpreter: CenoteInterpreter) -> None:
    """By position or by name; arguments that do not fit the fields are an error of the code."""
    assert FinalOutput({"output": 3}) == interpreter.execute("SUBMIT(3)\nx = 0")
    assert "8" == interpreter.execute("x")
    interpreter.output_fields = [{"name": "a"}, {"name": "b"}]
    assert FinalOutput({"a": 1, "b": 2}) == interpreter.execute("SUBMIT(1, 2)")
    assert FinalOutput({"a": 1, "b": 2}) == interpreter.execute("SUBMIT(b=2, a=1)")
    for wrong in ("SUBMIT(1)", "SUBMIT(1, 2, 3)", "SUBMIT(1, a=2)", "SUBMIT(a=1, c=2)"):
        with pytest.raises(CodeExecutionError, match=r"SUBMIT\(a, b\)"):
            interpreter.execute(wrong)
    interpreter.output_fields = None
    with pytest.raises(CodeExecutionError, match="plain data"):
        interpreter.execute("class Own: pass\nSUBMIT(Own())")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("double(-1)", "ValueError: -1 is negative"),
        ("1/0", "ZeroDivisionError"),
        ("while True: pass", "TimeoutError: the cell ran longer than 1 s"),
        ("import os\nos._exit(3)", "The namespace is as it was before this code."),
        ("b = bytearray(2**31)", "MemoryError"),
    ],
)
def test_code_that_fails_can_be_repaired(interpreter: CenoteInterpreter, code: str, message: str) -> None:
    """The model repairs it, with the text and the namespace."""
    with pytest.raises(CodeExecutionError) as failed:
        interpreter.execute(f"print('so far')\n{code}")
    assert message in str(failed.value)
    assert "so far" in str(failed.value)
    assert "8" == interpreter.execute("x")


def test_a_syntax_error_is_one(interpreter: CenoteInterpreter) -> None:
    """It is Python's own class, as the protocol requires."""
    with pytest.raises(SyntaxError):
        interpreter.execute("x = ")


def test_what_no_code_can_repair(interpreter: CenoteInterpreter) -> None:
    """Invalid names, values that cannot be sent, an interpreter that has ended."""
    for variables in ({"double": 1}, {"SUBMIT": 1}, {"two words": 1}, {"lock": (_ for _ in ())}):
        with pytest.raises(CodeInterpreterError):
            interpreter.execute("1", variables)
    for name in ("two words", "SUBMIT"):
        with pytest.raises(CodeInterpreterError):
            CenoteInterpreter({name: double}, runtime=interpreter.runtime).execute("1")
    own = CenoteInterpreter(sandbox=SandboxPolicy(memory="256MiB"))
    own.shutdown()
    own.shutdown()
    with pytest.raises(CodeInterpreterError, match="shut down"):
        own.execute("1")


def test_variables_keep_what_code_did_to_them(interpreter: CenoteInterpreter) -> None:
    """The same object is not sent again; a different one is, and one that was deleted."""
    frame = pd.DataFrame({"a": [1, 2]})
    assert "3" == interpreter.execute("frame = frame + 1\nn = int(frame.a.sum()) - 2\nn", {"frame": frame})
    assert "5" == interpreter.execute("int(frame.a.sum())", {"frame": frame})
    assert "7" == interpreter.execute("frame.a.sum().item()", {"frame": pd.DataFrame({"a": [7]})})
    interpreter.execute("del frame")
    assert "3" == interpreter.execute("frame.a.sum().item()", {"frame": frame})


def test_an_rlm(runtime: PythonRuntime) -> None:
    """Its tools, an async one, its sub-model and its `dspy` facade work; the namespace stays for the next module."""

    async def slowly(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    lm = turns(
        "n = slowly(double(len(text)))\nn", "1/0", "print(llm_query('Well?'))", "import dspy\nprint(dspy.Predict)",
        "SUBMIT(n=n)",
    )  # fmt: skip
    sub = DummyLM([{"answer": "well"}] * 3)
    with dspy.context(lm=lm):
        rlm = dspy.RLM(
            "text -> n: int", tools=[double, slowly], sub_lm=lambda *a, **k: ["well"],
            interpreter_factory=InterpreterFactory(runtime, timeout=5), max_iters=6,
        )  # fmt: skip
        done = rlm(text="word")
    outputs = [str(step["output"]) for step in done.trajectory]
    assert 9 == done.n
    assert "9" in outputs[0]
    assert "ZeroDivisionError" in outputs[1]
    assert "well" in outputs[2]
    assert "function" in outputs[3]
    assert sub is not None
    assert "9" == CenoteInterpreter(runtime=runtime).execute("n")


async def test_an_rlm_that_is_awaited(runtime: PythonRuntime) -> None:
    """`acall` works as `__call__` does."""
    with dspy.context(lm=turns("SUBMIT(double(2))")):
        rlm = dspy.RLM("text -> n: int", tools=[double], interpreter_factory=InterpreterFactory(runtime))
        done = await rlm.acall(text="word")
        assert 4 == done.n, done


def test_code_act_and_program_of_thought(runtime: PythonRuntime) -> None:
    """Each ends with the result of its code."""
    code = "```python\nprint(triple(5))\n```"
    lm = DummyLM([{"generated_code": code, "finished": "True"}, {"reasoning": "so", "n": "15"}])
    with dspy.context(lm=lm):
        act = dspy.CodeAct("text -> n: int", tools=[triple], interpreter_factory=InterpreterFactory(runtime))
        done = act(text="word")
    assert "15" in str(done.trajectory)
    program = "```python\nSUBMIT({'n': 6 * 7})\n```"
    lm = DummyLM([{"reasoning": "so", "generated_code": program}, {"reasoning": "so", "n": "42"}])
    with dspy.context(lm=lm, interpreter_factory=InterpreterFactory(runtime)):
        assert 42 == dspy.ProgramOfThought("text -> n: int")(text="word").n


def triple(x: int) -> int:
    return 3 * x


def test_settings_of_the_caller_hold_in_tools(interpreter: CenoteInterpreter) -> None:
    """`dspy.context` applies to a tool that the code calls, although it runs on another thread."""
    interpreter.tools["which"] = lambda: dspy.settings.lm.model
    with dspy.context(lm=DummyLM([{}])):
        assert "'dummy'" == interpreter.execute("which()")
