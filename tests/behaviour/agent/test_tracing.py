"""Traces of agents and cells: one tree, with OpenTelemetry's names, contents only on request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence

import pytest
from mcp.client.client import Client
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from cenote import CaveAgent, PythonRuntime, SandboxPolicy, tracing
from cenote.doors.mcp_server import Context, mcp_server
from cenote.doors.open_runtimes import LocalSource, OpenRuntimes
from cenote.harness import Patch
from cenote.models import Message, ScriptedModel
from cenote.models.messages import ModelChunk
from cenote.runtime import AsyncPythonRuntime, Function, Variable
from cenote.tracing import TraceSpan, carried, continued
from cenote_security.errors import UnknownNameError

POLICY = SandboxPolicy(preload=())
EXPORTER = InMemorySpanExporter()
REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[TracerProvider]:
    """A process has one provider for its lifetime; other tests of this process only add their spans to it."""
    current = trace.get_tracer_provider()
    if not isinstance(current, TracerProvider):
        current = TracerProvider()
        trace.set_tracer_provider(current)
    processor = SimpleSpanProcessor(EXPORTER)
    current.add_span_processor(processor)
    yield current
    processor.shutdown()


@pytest.fixture(autouse=True)
def spans() -> InMemorySpanExporter:
    EXPORTER.clear()
    return EXPORTER


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=POLICY, name="traced") as made:
        yield made


def tree() -> list[str]:
    """Names, indented below their parents, in starting order."""
    found = sorted(EXPORTER.get_finished_spans(), key=lambda span: span.start_time or 0)
    ids = {span.context.span_id: span for span in found if span.context is not None}

    def depth(span: ReadableSpan) -> int:
        parent = ids.get(span.parent.span_id) if span.parent is not None else None
        return 0 if parent is None else 1 + depth(parent)

    assert 1 == len({span.context.trace_id for span in found if span.context is not None})
    return ["  " * depth(span) + span.name for span in found]


def one(name: str) -> dict[str, object]:
    (span,) = (span for span in EXPORTER.get_finished_spans() if span.name == name)
    return dict(span.attributes or {})


async def test_a_run_of_an_agent_is_one_tree() -> None:
    """The agent, its model's answers, its cells, the calls of host functions, and a sub-agent in one of those."""

    def ask(number: int) -> int:
        return number + 1

    helper = CaveAgent(ScriptedModel(["```python\nz = 1\n```", "helped"]), AsyncPythonRuntime(sandbox=POLICY))
    functions = [Function(ask, host=True, effect="pure")]
    variables = [Variable("helper", helper)]
    async with (
        helper.runtime,
        AsyncPythonRuntime(sandbox=POLICY, functions=functions, variables=variables) as runtime,
    ):
        answers = ["```python\nx = ask(1)\nanswer = await helper.run('help')\n```", "done"]
        response = await CaveAgent(ScriptedModel(answers), runtime).run("a task")
    assert "done" == response.content
    assert [
        "invoke_agent",
        "  chat scripted",
        "  execute_tool python",
        "    execute_tool ask",
        "    execute_tool helper.run",
        "      invoke_agent",
        "        chat scripted",
        "        execute_tool python",
        "        chat scripted",
        "  chat scripted",
    ] == tree()


async def test_what_spans_say() -> None:
    async with AsyncPythonRuntime(sandbox=POLICY, name="told") as runtime:
        await CaveAgent(ScriptedModel(["```python\nx = 'secret'\nx\n```", "done"]), runtime).run("a task")
    cell = one("execute_tool python")
    assert "execute_tool" == cell["gen_ai.operation.name"]
    assert "python" == cell["gen_ai.tool.name"]
    assert ("told", 1, "ok") == (
        cell["cenote.runtime.name"],
        cell["cenote.step"],
        cell["cenote.cell.outcome"],
    )
    agent = one("invoke_agent")
    assert 2 == agent["cenote.agent.steps"]
    assert 0 < int(str(agent["gen_ai.usage.output_tokens"]))
    assert "secret" not in str([dict(span.attributes or {}) for span in EXPORTER.get_finished_spans()])


def test_contents_are_there_where_they_are_asked_for(
    runtime: PythonRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tracing.CONTENT_VARIABLE, "true")
    runtime.execute("print('said')\n6 * 7")
    cell = one("execute_tool python")
    assert "print('said')\n6 * 7" == cell["gen_ai.tool.call.arguments"]
    assert "said\n42" == cell["gen_ai.tool.call.result"]


@pytest.mark.parametrize(
    ("code", "error", "outcome"),
    [("1 / 0", "ZeroDivisionError", "failed"), ("import os; os._exit(3)", "CellCrashed", "rolled_back")],
)
def test_a_cell_that_fails(runtime: PythonRuntime, code: str, error: str, outcome: str) -> None:
    runtime.execute(code)
    cell = one("execute_tool python")
    assert (error, outcome) == (cell["error.type"], cell["cenote.cell.outcome"])


def test_a_patch_says_what_it_ran_again(runtime: PythonRuntime) -> None:
    step = runtime.execute("a = 1").step
    runtime.execute("b = a + 1")
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(step, "a = 10", reason="another value")))
    patch = one("cenote.patch")
    assert len(result.steps_rerun) == patch["cenote.rerun.count"]
    assert len(result.steps_reused) == patch["cenote.reuse.count"]


def test_a_value_that_is_handed_over(runtime: PythonRuntime) -> None:
    runtime.execute("shared = [1, 2, 3]")
    runtime.share("shared").release()
    assert "traced" == one("cenote.share")["cenote.runtime.name"]


@pytest.mark.parametrize("asked", [False, True])
def test_words_of_the_code_are_there_where_they_are_asked_for(
    runtime: PythonRuntime, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """Names of variables, and of exception classes, which a cell can make from any text."""
    monkeypatch.setenv(tracing.CONTENT_VARIABLE, str(asked).lower())
    runtime.execute("secret_plan = 1")
    runtime.share("secret_plan").release()
    with pytest.raises(UnknownNameError):
        runtime.share("secret_idea")
    runtime.execute("raise type('hunter2 is the secret', (Exception,), {})")
    runtime.execute("import json\njson.loads('no')")
    cells = [span for span in EXPORTER.get_finished_spans() if span.name == "execute_tool python"]
    assert [None, "_OTHER", "_OTHER"] == [dict(span.attributes or {}).get("error.type") for span in cells]
    said = [str(dict(span.attributes or {})) for span in EXPORTER.get_finished_spans()]
    for word in ("secret_plan", "secret_idea", "hunter2"):
        assert asked == any(word in text for text in said), word


async def test_a_run_that_fails_says_of_what() -> None:
    class Broken(ScriptedModel):
        async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
            yield "text"
            raise LookupError("secret")

    async with AsyncPythonRuntime(sandbox=POLICY) as runtime:
        with pytest.raises(LookupError):
            await CaveAgent(Broken(["done"]), runtime).run("a task")
    assert "LookupError" == one("invoke_agent")["error.type"]
    assert "LookupError" == one("chat scripted")["error.type"]


def test_a_span_may_end_while_another_thread_uses_it() -> None:
    """A cell may end before the thread that began it has described it."""

    class Racing(TraceSpan):
        """Ends right after it was inspected."""

        @property
        def _span(self) -> object:
            span, self.given = self.given, None
            return span

        @_span.setter
        def _span(self, span: object) -> None:
            self.given = span

    def racing() -> Racing:
        return Racing(trace.get_tracer("test").start_span("racing"))

    assert racing().recording
    racing().set("name", 1)
    racing().content("name", "text")
    with racing().current():
        assert trace.get_current_span().is_recording()


def test_a_trace_goes_on_where_another_process_has_begun_it(runtime: PythonRuntime) -> None:
    with continued({"traceparent": REMOTE}):
        assert REMOTE == carried()["traceparent"]
        runtime.execute("x = 1")
    (span,) = EXPORTER.get_finished_spans()
    assert span.parent is not None
    assert (REMOTE.split("-")[1], REMOTE.split("-")[2]) == (
        f"{span.parent.trace_id:032x}",
        f"{span.parent.span_id:016x}",
    )
    assert {} == carried()


@pytest.mark.parametrize(
    "odd", ["", "no", "00-0-0-00", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 10**6]
)
def test_a_header_that_is_none_begins_a_trace(runtime: PythonRuntime, odd: str) -> None:
    with continued({"traceparent": odd}):
        runtime.execute("x = 1")
    (span,) = EXPORTER.get_finished_spans()
    assert span.parent is None


def test_names_are_those_of_the_conventions() -> None:
    theirs = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    ours = {value for name, value in vars(tracing).items() if str(value).startswith("gen_ai.")}
    assert ours <= theirs


def test_nothing_is_imported_where_nobody_traces() -> None:
    code = (
        "import sys\n"
        "from cenote import PythonRuntime, SandboxPolicy\n"
        "with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:\n"
        "    assert runtime.execute('x = 1').success\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert "[]\n" == done.stdout, done.stderr


async def test_a_trace_goes_through_mcp() -> None:
    """By the `_meta` of a request."""
    runtimes = OpenRuntimes(LocalSource(POLICY))

    async def all_of_them(_: Context) -> OpenRuntimes:
        return runtimes

    async with Client(mcp_server(all_of_them)) as client:
        await client.call_tool("open", {"runtime": "traced"})
        # The server's task is older than this span, and gets it from the request alone.
        with trace.get_tracer("client").start_as_current_span("client") as begun:
            await client.call_tool("run", {"runtime": "traced", "code": "x = 1"})
    await runtimes.close()
    (cell,) = (span for span in EXPORTER.get_finished_spans() if span.name == "execute_tool python")
    assert cell.context is not None
    assert begun.get_span_context().trace_id == cell.context.trace_id
