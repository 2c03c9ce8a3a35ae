"""The parts shared by all adapters work without any framework, and a missing framework gives a one-line error."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from cenote import AsyncPythonRuntime, PythonRuntime, SandboxPolicy
from cenote.adapters.agent_namespace import AgentNamespace, awaiting, failure, printed, shortened, told
from cenote.security import SecurityChecker, strict_rules
from cenote_security.errors import UsageError
from cenote_security.extras import MissingExtraError

ROOT = Path(__file__).resolve().parents[3]
ADAPTERS = {
    path.stem: path
    for path in (ROOT / "platform" / "cenote" / "adapters").glob("*.py")
    if path.stem not in ("__init__", "agent_namespace")
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(security_checker=SecurityChecker(strict_rules())) as runtime:
        yield runtime


@pytest.fixture
def namespace(runtime: PythonRuntime) -> Iterator[AgentNamespace]:
    namespace = AgentNamespace(runtime, ending="finish", timeout=30)
    yield namespace
    namespace.close()


def test_tools_are_replaced(namespace: AgentNamespace) -> None:
    """The tools of the last call are there, also after code has deleted or rebound one, or after a rollback."""
    namespace.offer({"one": lambda: 1, "two": lambda: 2})
    assert "(1, 2)" == namespace.run("one(), two()").value
    begin = namespace.runtime.snapshot("begin")
    namespace.offer({"one": lambda: 10})
    assert "10" == namespace.run("one()").value
    assert not namespace.run("two()").success
    namespace.run("del one")
    namespace.offer({"one": lambda: 11, "two": lambda: 12})
    assert "(11, 12)" == namespace.run("one(), two()").value
    namespace.run("one = two = 5")
    namespace.runtime.rollback(begin)
    namespace.offer({"one": lambda: 20})
    assert "20" == namespace.run("one()").value


def test_a_bad_name_changes_nothing(namespace: AgentNamespace) -> None:
    """Names are checked before the first tool or value is sent."""
    namespace.offer({"one": lambda: 1})
    with pytest.raises(UsageError, match="'a b' is not a Python identifier"):
        namespace.offer({"two": lambda: 2, "a b": lambda: 3})
    with pytest.raises(UsageError, match="'class' is a Python keyword"):
        namespace.put({"never_put": 1, "class": 2})
    assert "1" == namespace.run("one()").value
    assert not namespace.run("never_put").success


def test_a_value_replaces_one_of_its_name(namespace: AgentNamespace) -> None:
    """The name may exist or not."""
    namespace.put({"x": 1})
    namespace.put({"x": 2, "_hidden": 3})
    assert "(2, 3)" == namespace.run("x, _hidden").value


def test_an_answer_ends_the_cell(namespace: AgentNamespace) -> None:
    """The answer leaves the jail as data; the next one replaces it; the runtime's rules apply to code only."""
    first = namespace.run("print('so far')\nfinish(1, b=[2])\nprint('never')")
    ended = namespace.ended(first)
    assert ended is not None
    assert ((1,), {"b": [2]}) == (ended.args, ended.kwargs)
    assert "so far" == printed(first, "")
    assert namespace.ended(namespace.run("3")) is None
    assert namespace.ended(namespace.run("reply('an answer')\n'finish'")) is None


@pytest.mark.parametrize(
    "code",
    [
        "del _finish_given",
        "_finish_given = [1]",
        "_finish_given = {'answer 1': [[1], {2: 3}]}\nreply('answer 1')",
    ],
)
def test_an_answer_that_code_has_spoiled(namespace: AgentNamespace, code: str) -> None:
    """The answer is lost and the model gets a message; the next answer works."""
    namespace.run("'finish'")
    spoiled = namespace.run(f"{code}\nif 'reply(' not in {code!r}: finish(1)")
    with pytest.raises(UsageError, match=r"call finish\(\) again"):
        namespace.ended(spoiled)
    ended = namespace.ended(namespace.run("finish(2)"))
    assert ended is not None
    assert (2,) == ended.args


def test_an_answer_that_cannot_leave(namespace: AgentNamespace) -> None:
    """The text is for a model; the next answer is not affected."""
    with pytest.raises(UsageError, match=r"finish\(\) takes plain data.*Own"):
        namespace.ended(namespace.run("class Own: pass\nfinish(Own())"))
    ended = namespace.ended(namespace.run("finish(2)"))
    assert ended is not None
    assert (2,) == ended.args


def test_two_agents_get_their_own_answers(runtime: PythonRuntime) -> None:
    """They use the same names, and either may end first."""
    one, two = (AgentNamespace(runtime.attach(name), ending="finish") for name in ("one", "two"))
    results = one.run("finish('one')"), two.run("finish('two')")
    answers = [each.ended(result) for each, result in zip((one, two), results, strict=True)]
    assert [("one",), ("two",)] == [answer.args for answer in answers if answer]
    one.close()
    two.close()


def test_texts_for_a_model(runtime: PythonRuntime) -> None:
    """Output, the error and what happened to the state; the middle of long output is left out."""
    code = "print('a')\n1/0"
    result = runtime.execute(code)
    assert "a" == printed(result, code)
    assert failure(result, code).startswith("ZeroDivisionError")
    assert "a\nError: ZeroDivisionError: division by zero [line 2: 1/0]" == told(result, code)
    assert "(no output)" == told(runtime.execute("x = 1"), "x = 1")
    assert len(shortened("y" * 50_000)) < 9_000
    with PythonRuntime(sandbox=SandboxPolicy(cell_timeout=5)) as other:
        assert "as it was before this code" in told(other.execute("import os; os._exit(1)"), "")


async def test_whose_runtime_it_is(runtime: PythonRuntime) -> None:
    """A caller's runtime stays open, in both APIs; one made here is closed; options apply to a new one only."""
    with pytest.raises(UsageError, match="name can only be given for a new one"):
        AgentNamespace(runtime, name="x")
    again = AgentNamespace(AsyncPythonRuntime.over(runtime.core))
    again.close()
    assert runtime.execute("1").success
    same, made = awaiting(runtime, {})
    assert ("1", False) == ((await same.execute("1")).value, made)
    own = AgentNamespace(name="own")
    own.close()
    own.close()
    with pytest.raises(UsageError):
        own.runtime.execute("1")


@pytest.mark.slow
@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_each_framework_is_an_extra(adapter: str) -> None:
    """The extra has the adapter's name; where the framework is missing, one line says what to install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = adapter.removesuffix("_sandbox")  # the second module for one framework
    assert extra in project["optional-dependencies"]
    assert adapter not in project["optional-dependencies"]["all"][0]
    code = f"import cenote.adapters.{adapter}"
    named = {"langchain": "deepagents", "openai_agents": "agents", "inspect": "inspect_ai", "rlms": "rlm"}
    framework = {**named, "skyrl": "skyrl_gym"}.get(extra, extra)
    if find_spec(framework) is not None:
        pytest.skip(f"{framework} is installed here; its own tests run")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    line = done.stderr.strip().splitlines()[-1]
    assert f"{MissingExtraError.__name__}: the adapter for " in line
    assert f"pip install 'cenote[{extra}]'" in line
