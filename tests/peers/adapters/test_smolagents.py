"""smolagents' CodeAgent runs over a runtime: its tools are called here, its code runs in a jail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from cenote import AsyncPythonRuntime, PythonRuntime, SandboxPolicy
from cenote.security import SecurityChecker, strict_rules

smolagents = pytest.importorskip("smolagents", reason="needs smolagents: `make test-peers` has it")

from smolagents.local_python_executor import InterpreterError  # noqa: E402

from cenote.adapters.smolagents import CenoteExecutor  # noqa: E402


class Scripted(smolagents.Model):  # type: ignore[misc]
    """Answers with these codes in order, and records its prompts."""

    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="scripted")
        self.codes = list(codes)
        self.seen: list[Any] = []

    def generate(self, messages: Any, **options: Any) -> Any:
        self.seen.append(messages)
        role = smolagents.MessageRole.ASSISTANT
        return smolagents.ChatMessage(role=role, content=f"<code>\n{self.codes.pop(0)}\n</code>")


@smolagents.tool
def double(x: int) -> int:
    """Twice x.

    Args:
        x: a number that is not negative
    """
    if x < 0:
        raise ValueError(f"{x} is negative")
    return 2 * x


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(memory="512MiB")) as runtime:
        yield runtime


def agent_over(runtime: PythonRuntime, *codes: str, tools: Any = (double,), timeout: float = 10) -> Any:
    return smolagents.CodeAgent(
        tools=list(tools),
        model=Scripted(*codes),
        executor=CenoteExecutor(runtime, timeout=timeout),
        additional_authorized_imports=["*"],
        verbosity_level=smolagents.LogLevel.OFF,
    )


def errors(agent: Any) -> list[str]:
    return [str(step.error) for step in agent.memory.steps if getattr(step, "error", None)]


def test_a_run_ends_with_its_final_answer(runtime: PythonRuntime) -> None:
    """Names persist between steps; a tool runs here; code after the answer does not run."""
    agent = agent_over(runtime, "y = double(21)\ny", "final_answer({'y': y})\ny = 0")
    assert {"y": 42} == agent.run("Double.")
    assert "Last output from code snippet:\n42" in str(agent.memory.steps[1].observations)
    assert 42 == runtime.retrieve("y")
    assert "exit()" not in str(agent.memory.steps[2].observations)


def test_a_second_run_has_the_names_of_the_first(runtime: PythonRuntime) -> None:
    """Also where code has deleted a tool and the function that ends a run; variables of the task are there."""
    agent = agent_over(runtime, "kept = 1\nfinal_answer(0)", "del double, final_answer\nfinal_answer(1)",
                       "final_answer([kept, double(2), frame.a.sum()])")  # fmt: skip
    agent.run("Begin.")
    frame = pd.DataFrame({"a": [1, 2]})
    with pytest.raises(InterpreterError, match="final_answer"):
        agent.python_executor("del final_answer\nfinal_answer(1)")
    agent.model.codes.pop(0)
    assert [1, 4, 3] == agent.run("Go on.", additional_args={"frame": frame}, reset=False)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("double(-1)", "ValueError: -1 is negative"),
        ("double(y=1)", "signature: double(x: "),
        ("1/0", "ZeroDivisionError"),
        ("x = ", "SyntaxError"),
        ("while True: pass", "TimeoutError: the cell ran longer than 1 s"),
        ("import os\nos._exit(3)", "The namespace is as it was before this code."),
        ("b = bytearray(2**31)", "MemoryError"),
        ("class Own: pass\nfinal_answer(Own())", "final_answer() takes plain data"),
        ("final_answer()", "answer"),
        ("final_answer(1, 2)", "positional argument"),
    ],
)
def test_what_fails_is_told_to_the_model_and_the_run_goes_on(
    runtime: PythonRuntime, code: str, message: str
) -> None:
    """The model gets the text of the error; the next step has the namespace."""
    agent = agent_over(runtime, f"print('so far')\n{code}", "final_answer(7)", timeout=1.0)
    assert 7 == agent.run("Fail.")
    (error,) = errors(agent)
    assert message in error
    assert message in str(agent.model.seen[-1])


def test_what_was_printed_before_a_failure_is_observed(runtime: PythonRuntime) -> None:
    """The state of the step before it is kept."""
    agent = agent_over(runtime, "print('so far')\n1/0", "final_answer(1)")
    agent.run("Fail.")
    assert "so far" in str(agent.memory.steps[1].observations)


def test_a_tool_of_the_users_own_checks_the_answer(runtime: PythonRuntime) -> None:
    """The agent's `final_answer` tool runs here, on the value from the code; the model gets what it raises."""

    class Positive(smolagents.FinalAnswerTool):  # type: ignore[misc]
        def forward(self, answer: Any) -> Any:
            if answer < 0:
                raise ValueError("no negative answers")
            return answer + 0.5

    agent = agent_over(runtime, "final_answer(-1)", "final_answer(answer=1)", tools=[double, Positive()])
    assert 1.5 == agent.run("Answer.")
    assert "no negative answers" in errors(agent)[0]


def test_a_managed_agent_with_a_runtime_of_its_own(runtime: PythonRuntime) -> None:
    """It runs here when code calls it; over the same runtime it is refused, since that waits for its answer."""
    with PythonRuntime() as other:
        helper = agent_over(other, "final_answer('helped')")
        helper.name, helper.description = "helper", "Helps."
        same = agent_over(runtime, *["final_answer(1)"] * 20)
        same.name, same.description, same.max_steps = "same", "Uses the same runtime.", 1
        boss = smolagents.CodeAgent(
            tools=[], model=Scripted("print(helper('Help.'))", "same('Help.')", "final_answer(2)"),
            managed_agents=[helper, same], executor=CenoteExecutor(runtime), verbosity_level=smolagents.LogLevel.OFF,
        )  # fmt: skip
        assert 2 == boss.run("Ask.")
        assert "helped" in str(boss.memory.steps[1].observations)
        assert "cannot use the runtime that called it" in errors(boss)[0]


def test_two_agents_in_one_namespace(runtime: PythonRuntime) -> None:
    """With separate or common names, each gets its own answer."""
    one, two = runtime.attach("one"), runtime.attach("two")
    first = agent_over(one, "common = 10\nfinal_answer('first')")
    second = agent_over(two, "final_answer(common + double(1))")
    assert ("first", 12) == (first.run("Begin."), second.run("Go on."))
    assert {"one", "two"} <= {step.author for step in runtime.state.steps}
    apart = agent_over(runtime.attach("apart", scope="private"), "final_answer([double(4), shared.common])")
    assert [8, 10] == apart.run("Apart.")


def test_cleanup(runtime: PythonRuntime) -> None:
    """A runtime made by the executor ends with the agent, also after a failure; a caller's one loses the tools."""
    executor = CenoteExecutor(sandbox=SandboxPolicy(memory="256MiB"))
    with (
        pytest.raises(InterpreterError, match="ZeroDivision"),
        smolagents.CodeAgent([], Scripted(), executor=executor),
    ):
        executor("1/0")
    with pytest.raises(InterpreterError, match="closed"):
        executor("x")
    executor.cleanup()
    ours = CenoteExecutor(runtime)
    ours.send_tools({"tripled": lambda x: 3 * x})
    assert 6 == ours("final_answer(tripled(2))").output
    ours.cleanup()
    assert not runtime.execute("tripled(2)").success


def test_bad_names_and_options_are_refused(runtime: PythonRuntime) -> None:
    """This happens before anything changes."""
    executor = CenoteExecutor(AsyncPythonRuntime.over(runtime.core))
    with pytest.raises(ValueError, match="not 'two words'"):
        executor.send_tools({"fine": double, "two words": double})
    with pytest.raises(ValueError, match="not '1x'"):
        executor.send_variables({"fine": 1, "1x": 2})
    assert not runtime.execute("fine").success
    with pytest.raises(ValueError, match="sandbox"):
        CenoteExecutor(runtime, sandbox=SandboxPolicy())


def test_rules_for_code_are_no_rules_for_the_adapter() -> None:
    """The strictest rules allow a run to end; the model gets the refusals."""
    with PythonRuntime(security_checker=SecurityChecker(strict_rules())) as guarded:
        agent = agent_over(guarded, "final_answer(globals())", "final_answer(3)")
        assert 3 == agent.run("Answer.")
        assert "globals" in errors(agent)[0]
