"""A runtime as the REPL of recursive language models. `python -m tests.peers.rlms` runs their own tests, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cenote import PythonRuntime, SandboxPolicy
from cenote_security.errors import RuntimeClosedError

pytest.importorskip("rlm", reason="needs rlms: `make test-peers` has it")

import rlm.core.rlm
from rlm import RLM
from rlm.clients.base_lm import BaseLM
from rlm.core.types import ModelUsageSummary, RLMChatCompletion, UsageSummary
from rlm.environments import SupportsCustomTools, SupportsPersistence

from cenote.adapters.rlms import CenoteREPL


class Scripted(BaseLM):  # type: ignore[misc]
    """Answers in the order given."""

    def __init__(self, answers: list[str]) -> None:
        super().__init__(model_name="scripted")
        self.answers = answers
        self.seen: list[Any] = []

    def completion(self, prompt: Any) -> str:
        self.seen.append(prompt)
        return self.answers.pop(0)

    async def acompletion(self, prompt: Any) -> str:
        return self.completion(prompt)

    def get_usage_summary(self) -> UsageSummary:
        return UsageSummary(model_usage_summaries={"scripted": self.get_last_usage()})

    def get_last_usage(self) -> ModelUsageSummary:
        return ModelUsageSummary(total_calls=1, total_input_tokens=1, total_output_tokens=1)


def block(code: str) -> str:
    return f"```repl\n{code}\n```"


def final(expression: str) -> str:
    return block(f"answer['content'] = {expression}\nanswer['ready'] = True")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """The model of all RLMs of a test, children and plain queries included."""
    scripted = Scripted([])
    monkeypatch.setattr(rlm.core.rlm, "get_client", lambda *_: scripted)
    return scripted


@pytest.fixture
def repl() -> Iterator[CenoteREPL]:
    with CenoteREPL(sandbox=SandboxPolicy(memory="512MiB"), timeout=2) as repl:
        yield repl


def completion(text: str) -> RLMChatCompletion:
    return RLMChatCompletion("m", "p", text, UsageSummary(model_usage_summaries={}), 0.0)


def rlm_over(runtime: PythonRuntime | None = None, **options: Any) -> RLM:
    given = {} if runtime is None else {"runtime": runtime}
    return RLM(environment="cenote", environment_kwargs=given, backend_kwargs={"model_name": "m"}, **options)


def test_a_task(model: Scripted) -> None:
    """Blocks of one completion share a namespace; the answer is a text, made of any plain value."""
    model.answers = [block("words = context.split()\nprint(len(words))"), final("len(set(words))")]
    assert "2" == rlm_over().completion("to be to be").response
    assert "4" in model.seen[-1][-2]["content"]


def test_a_runtime_of_the_caller(model: Scripted) -> None:
    """It stays, for the next completion and for its owner; a task's own names are gone from it."""
    with PythonRuntime() as runtime:
        model.answers = [block("kept = context + '!'"), final("kept")]
        assert "one!" == rlm_over(runtime).completion("one").response
        model.answers = [final("kept + context")]
        assert "one!two" == rlm_over(runtime).completion("two").response
        assert "one!" == runtime.retrieve("kept")
        assert not runtime.execute("llm_query").success


def test_children_have_jails_of_their_own(model: Scripted) -> None:
    """Their parent's cell waits for them, in the runtime that the root has; policies are the same."""
    model.answers = [
        block("a, b = 'alpha', rlm_query('beta')"),
        block("import os\nb = context.upper(), 'a' in globals(), os.environ['MARK']"),
        final("b"),
        final("f'{a} {b}'"),
    ]
    with PythonRuntime(sandbox=SandboxPolicy(env={"MARK": "same"})) as runtime:
        answer = rlm_over(runtime, max_depth=2).completion("start").response
    assert "alpha ('BETA', False, 'same')" == answer


def test_several_completions_in_one_environment(model: Scripted) -> None:
    """`persistent=True` numbers contexts and histories."""
    with rlm_over(persistent=True) as session:
        model.answers = [final("context")]
        assert "one" == session.completion("one").response
        model.answers = [final("(context, context_1, len(history) > 1)")]
        assert "('one', 'two', True)" == session.completion("two").response


def test_failures_are_for_the_model(repl: CenoteREPL) -> None:
    """Errors, limits and crashes are in the result; the namespace stays."""
    repl.execute_code("x = 5")
    codes = ("print('out')\n1/0", "while True: pass", "import os\nos._exit(3)", "b = bytearray(2**31)")
    results = [repl.execute_code(code) for code in codes]
    signs = ("ZeroDivisionError", "ran longer than 2 s", "as it was before this code", "MemoryError")
    assert [] == [(s, r.stderr) for s, r in zip(signs, results, strict=True) if s not in r.stderr]
    assert "out" in results[0].stdout
    assert 5 == repl.locals["x"]


def test_answers(repl: CenoteREPL) -> None:
    """One is taken when it is ready, also from a dictionary that code made, and from a block that fails after it."""
    assert repl.execute_code("answer['content'] = 'part'").final_answer is None
    assert "part" == repl.execute_code("answer['ready'] = True\n1/0").final_answer
    assert repl.execute_code("print(answer)").final_answer is None
    assert "7" == repl.execute_code("answer = {'content': 7, 'ready': True}").final_answer
    assert repl.execute_code("answer = 5").final_answer is None
    assert "" == repl.locals["answer"]["content"]


def test_an_answer_that_cannot_leave(repl: CenoteREPL) -> None:
    """The model reads why, and nothing of it runs here."""
    hostile = "class Trap:\n    def __reduce__(self): return (print, ('here',))\n    def __str__(self): return 'ok'\n"
    result = repl.execute_code(f"{hostile}answer['content'] = Trap()\nanswer['ready'] = True")
    assert result.final_answer is None
    assert "make answer['content'] a text" in result.stderr
    assert "ok" == repl.execute_code("answer['content'] = str(answer['content'])").final_answer


def test_promised_names_come_back(repl: CenoteREPL) -> None:
    """What code puts in their place goes with the block that did it."""
    repl.add_context("the text")
    repl.execute_code("context = llm_query = 3\ndef SHOW_VARS(): return 'mine'")
    shown = repl.execute_code("print(context, llm_query('hello'), SHOW_VARS())").stdout
    assert "the text Error: No LM handler configured" in shown
    assert "'context_0': 'str'" in shown
    assert "llm_query" not in shown


def test_tools_run_here() -> None:
    """Functions as host functions, other values as variables; reserved names are refused."""
    seen: list[int] = []
    with CenoteREPL(
        custom_tools={"note": {"tool": seen.append, "description": "Notes."}, "LIMIT": 7}
    ) as repl:
        repl.execute_code("note(LIMIT)")
        assert isinstance(repl, SupportsCustomTools)
        assert isinstance(repl, SupportsPersistence)
    assert [7] == seen
    with pytest.raises(ValueError, match="llm_query"):
        CenoteREPL(custom_tools={"llm_query": print})


def test_queries_are_counted_with_their_block() -> None:
    """Children work at once, their answers keep their order, and one that fails is a text."""

    def child(prompt: str, model: str | None) -> RLMChatCompletion:
        if prompt == "bad":
            raise ValueError("no")
        return completion(prompt.upper())

    with CenoteREPL(subcall_fn=child) as repl:
        result = repl.execute_code("print(rlm_query_batched(['a', 'bad', 'c']))")
        assert ["A", "C"] == [call.response for call in result.rlm_calls]
        assert "['A', 'Error: RLM query failed - no', 'C']" in result.stdout
        assert [] == repl.execute_code("1").rlm_calls


def test_what_is_there_is_listed_and_not_shown(repl: CenoteREPL) -> None:
    """rlms lists names with plain values; values stay in the jail."""
    listed = repl.execute_code("secret = 'abc' * 1000\nodd = {1, 3}").locals
    assert isinstance(listed["secret"], str)
    assert "abc" not in str(listed)
    assert not isinstance(listed["odd"], str)


def test_without_a_name_of_rlms_nothing_changes(model: Scripted) -> None:
    """Other environments are made as before, and unknown ones are refused."""
    model.answers = [final("context")]
    assert "one" == RLM(backend_kwargs={"model_name": "m"}).completion("one").response
    with pytest.raises(ValueError, match="Unknown environment"):
        RLM(environment="elsewhere", backend_kwargs={"model_name": "m"}).completion("one")  # type: ignore[arg-type]


def test_a_closed_runtime_ends_the_run(model: Scripted) -> None:
    """It is an error of the program, and no text for the model."""
    with PythonRuntime() as runtime:
        pass
    with pytest.raises(RuntimeClosedError):
        rlm_over(runtime).completion("one")
