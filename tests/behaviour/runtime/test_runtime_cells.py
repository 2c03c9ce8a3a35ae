"""Cells in a real jail: what runs, what is shown, what is kept."""

from __future__ import annotations

import asyncio
import threading
from itertools import groupby
from operator import itemgetter

import pytest
from tests.support.escape.arena import worker_of
from tests.support.overdue import overdue
from tests.support.processes import kernel_kills, kill
from tests.waiting import PATIENCE, until

from cenote.runtime import AsyncPythonRuntime, ExecutionResult, PythonRuntime, Span
from cenote_security.errors import RuntimeClosedError, UsageError
from cenote_security.policy import SandboxPolicy

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform", "relayed", "http")]


def ok(result: ExecutionResult) -> ExecutionResult:
    assert result.success, result.error
    return result


def test_state_persists_between_cells(runtime: PythonRuntime) -> None:
    """A name bound in one cell is there in the next; steps are counted from 1."""
    assert ok(runtime.execute("x = 40")).step == 1
    second = ok(runtime.execute("x + 2"))
    assert ("42", 2, "kept") == (second.value, second.step, second.state)


@pytest.mark.at("embedded", "platform", "http")
def test_runtimes_do_not_share_a_namespace(make_runtime) -> None:
    """Two runtimes of one process are independent."""
    first, second = make_runtime(), make_runtime()
    ok(first.execute("x = 1"))
    assert second.execute("x").error.type == "NameError"


def test_output_in_order(runtime: PythonRuntime) -> None:
    """stdout and stderr of Python, of child processes and of C code arrive in program order."""
    heard: list[tuple[str, str]] = []
    code = """
import os, subprocess, sys
print("one")
print("two", file=sys.stderr)
subprocess.run(["sh", "-c", "echo three; echo four >&2"])
print("five")
os.write(1, b"six\\n")
print("seven", flush=True)
"""
    result = ok(runtime.execute(code, on_output=lambda stream, text: heard.append((stream, text))))
    assert "one\nthree\nfive\nsix\nseven\n" == result.stdout
    assert "two\nfour\n" == result.stderr
    words = "".join(text for _, text in heard).split()
    assert ["one", "two"] == words[:2]
    assert ["five", "six", "seven"] == words[4:]
    assert {"three", "four"} == set(words[2:4])
    in_order = [(stream, "".join(text for _, text in run)) for stream, run in groupby(heard, itemgetter(0))]
    assert in_order == list(result.printed)


@pytest.mark.usefixtures("patient")
def test_output_streams_while_the_cell_runs(runtime: PythonRuntime) -> None:
    """The first line arrives before the cell has ended."""
    heard = threading.Event()

    def listen(stream: str, text: str) -> None:
        if "ready" in text:
            heard.set()
            runtime.interrupt()

    result = runtime.execute("print('ready')\nimport time\ntime.sleep(600)", on_output=listen)
    assert heard.is_set()
    assert result.error.reason == "interrupt"
    assert result.duration < 500


@pytest.mark.at("embedded", "platform", "http")
def test_endless_output_is_bounded(make_runtime) -> None:
    """Head and tail are kept, the middle is counted."""
    runtime = make_runtime(sandbox=SandboxPolicy(output="100KB"))
    code = "print('first')\nfor i in range(3000): print('x' * 1000)\nprint('last')"
    result = ok(runtime.execute(code))
    assert result.truncated
    assert len(result.stdout) < 101_000
    assert result.stdout.startswith("first\n")
    assert result.stdout.endswith("last\n")
    assert "characters left out" in result.stdout


def test_slow_listeners_slow_the_cell_not_the_memory(runtime: PythonRuntime) -> None:
    """A listener that is slower than the cell makes the cell wait; nothing is lost."""
    total = 0

    def listen(stream: str, text: str) -> None:
        nonlocal total
        total += len(text)

    ok(runtime.execute("for _ in range(100): print('x' * 99_999)", on_output=listen))
    assert 100 * 100_000 == total


def test_failing_code_is_a_field(runtime: PythonRuntime) -> None:
    """An exception is data: type, message with a hint, the user's traceback, the exact span."""
    runtime.execute("total = 1")
    result = runtime.execute("a = 1\nb = totl + 1")
    assert not result.success
    assert ("NameError", "exception") == (result.error.type, result.error.reason)
    assert "total" in result.error.message
    assert Span(line=2, column=4, end_line=2, end_column=8) == result.error.span
    assert "cenote" not in str(result.error)
    assert ok(runtime.execute("a")).value == "1"


@pytest.mark.at("embedded", "platform", "http")
def test_top_level_await_and_asyncio_run(runtime: PythonRuntime) -> None:
    """Both ways in which models write async code work."""
    assert "3" == ok(runtime.execute("import asyncio\nawait asyncio.sleep(0, 3)")).value
    assert "4" == ok(runtime.execute("async def f(): return 4\nasyncio.run(f())")).value


def test_timeout_keeps_the_namespace(runtime: PythonRuntime) -> None:
    """A cell that can be interrupted loses only the code that has not run."""
    result = overdue(runtime, "x = 1\nprint('begun')\nimport time\nwhile True: time.sleep(0.01)")
    assert ("time", "kept", "TimeoutError") == (result.error.reason, result.state, result.error.type)
    assert ok(runtime.execute("x")).value == "1"


@pytest.mark.at("embedded", "platform", "http")
def test_a_cell_that_ignores_the_interrupt_is_killed(hasty: None, make_runtime) -> None:
    """Without snapshots the namespace is lost, the result says so, and the runtime continues with a new one."""
    runtime = make_runtime(sandbox=SandboxPolicy(snapshots="none"))
    result = overdue(
        runtime,
        "import time\nwhile True:\n    try: print('begun'); time.sleep(0.01)\n    except BaseException: pass",
    )
    assert ("time", "lost") == (result.error.reason, result.state)
    assert "gone" in str(result.error)
    assert ok(runtime.execute("1 + 1")).value == "2"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import ctypes; ctypes.string_at(0)", "signal 11"),
        ("import os; os._exit(3)", "exit"),
        ("import os; os.abort()", "signal 6"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
    ],
)
def test_a_dying_process(make_runtime, code: str, reason: str) -> None:
    """The result names the reason; without snapshots, the next cell runs in a new jail."""
    runtime, before = make_runtime(sandbox=SandboxPolicy(snapshots="none")), -1
    while before != kernel_kills():  # without control groups, this may have been one of those
        before = kernel_kills()
        result = runtime.execute(code)
    assert (reason, "lost") == (result.error.reason, result.state)
    assert ok(runtime.execute("'alive'")).value == "'alive'"


@pytest.mark.at("embedded", "platform", "http")
def test_memory_limit(make_runtime) -> None:
    """An allocation over the limit is a MemoryError that the namespace survives."""
    runtime = make_runtime(sandbox=SandboxPolicy(memory="256MiB"))
    result = runtime.execute("x = bytearray(2**30)")
    assert ("MemoryError", "memory", "kept") == (result.error.type, result.error.reason, result.state)
    assert ok(runtime.execute("1")).value == "1"


@pytest.mark.at("embedded", "http")
@pytest.mark.slow
def test_code_that_cannot_be_compiled_for_want_of_memory(make_runtime) -> None:
    """A cell with a large literal gets an alternative; one nested too deeply, a possible cause."""
    runtime = make_runtime(sandbox=SandboxPolicy(memory="256MiB"))
    result = runtime.execute("x = [" + "1," * 400_000 + "]")
    assert ("MemoryError", "memory", "kept") == (result.error.type, result.error.reason, result.state)
    assert "which is 0.8 MB here; put data into files, or have them injected" in result.error.message
    nested = runtime.execute("x = " + "-" * 90_000 + "1").error
    assert "nested too deeply for Python to compile, or memory is short" in nested.message


@pytest.mark.at("embedded")
def test_death_between_cells_is_reported_once(make_runtime) -> None:
    """A cell that relies on lost state does not run; the one after it does."""
    runtime = make_runtime(sandbox=SandboxPolicy(snapshots="none"))
    ok(runtime.execute("x = 1"))
    kill(worker_of(runtime))
    until(lambda: not runtime.core.running)
    result = runtime.execute("print('must not run')")
    assert ("lost", "") == (result.state, result.stdout)
    assert "did not run" in str(result.error)
    assert ok(runtime.execute("1")).value == "1"


@pytest.mark.at("embedded", "platform", "relayed")
def test_status_while_the_lock_is_held(runtime: PythonRuntime) -> None:
    """The supervisor answers even when nothing in the namespace process can."""
    ok(runtime.execute("x = 1"))
    started = threading.Event()
    code = "print('go')\nimport re\nre.match(r'(a+)+b', 'a' * 60)"
    results: list[ExecutionResult] = []
    thread = threading.Thread(
        target=lambda: results.append(runtime.execute(code, on_output=lambda *_: started.set()))
    )
    thread.start()
    assert started.wait(PATIENCE)
    status = runtime.status()
    assert (2, runtime.isolation) == (status.step, status.isolation)
    assert status.memory > 1_000_000
    assert status.processes >= 1
    runtime.close()
    thread.join(PATIENCE)
    assert [("lost", "closed")] == [(result.state, result.error.reason) for result in results]


@pytest.mark.at("embedded", "platform", "http")
@pytest.mark.slow
def test_rich_outputs(runtime: PythonRuntime) -> None:
    """A figure is a PNG, a frame has HTML and text."""
    result = ok(
        runtime.execute(
            "import pandas as pd\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n"
            "pd.DataFrame({'a': [1]})"
        )
    )
    figure, frame = result.outputs
    assert figure["image/png"].startswith(b"\x89PNG")
    assert "<table" in frame["text/html"]
    assert "a" in frame["text/plain"]


@pytest.mark.at("embedded", "platform", "http")
def test_callers_queue(runtime: PythonRuntime) -> None:
    """Cells from many threads run one after the other, each with its own output."""
    results: list[ExecutionResult] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(runtime.execute(f"print({n})\n{n}")))
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert all(result.stdout.strip() == result.value for result in results)
    assert list(range(1, 21)) == sorted(result.step for result in results)


@pytest.mark.at("embedded", "platform")
def test_reset_forgets_cells(runtime: PythonRuntime) -> None:
    """reset() makes a new namespace; steps continue to count."""
    ok(runtime.execute("x = 1"))
    runtime.reset()
    assert runtime.execute("x").error.type == "NameError"


@pytest.mark.at("embedded", "platform", "relayed")
def test_closed_runtimes_say_so(runtime: PythonRuntime) -> None:
    """Every call after close() is refused with a next step."""
    runtime.close()
    with pytest.raises(RuntimeClosedError, match="make a new one"):
        runtime.execute("1")


@pytest.mark.at("embedded", "platform", "http")
@pytest.mark.parametrize(
    ("code", "timeout"), [(3, None), ("1", 0), ("1", -1), ("1", float("nan")), ("1", "1")]
)
def test_bad_arguments(runtime: PythonRuntime, code: object, timeout: float | None) -> None:
    """Wrong arguments are refused before anything runs."""
    with pytest.raises(UsageError):
        runtime.execute(code, timeout=timeout)


@pytest.mark.at("embedded", "platform")
def test_code_that_no_encoding_has(runtime: PythonRuntime) -> None:
    """A lone surrogate, as models write it in JSON, is an error of that cell only."""
    ok(runtime.execute("x = 1"))
    result = runtime.execute("y = '\ud800'")
    assert (False, "kept") == (result.success, result.state)
    assert "surrogates not allowed" in str(result.error)
    assert "1" == ok(runtime.execute("x")).value


@pytest.mark.at("embedded", "http")
def test_builtins_that_a_cell_has_replaced(runtime: PythonRuntime) -> None:
    """They stay replaced for its own code; answers are written with the original ones."""
    ok(runtime.execute("import builtins\nx = -3**500"))
    for name in (
        "isinstance",
        "map",
        "all",
        "min",
        "max",
        "int",
        "dict",
        "list",
        "len",
        "type",
        "iter",
        "any",
    ):
        result = runtime.execute(f"kept, builtins.{name} = builtins.{name}, None\n1 / 0")
        assert ("ZeroDivisionError", "kept") == (result.error and result.error.type, result.state)
        assert "x" in [info.name for info in runtime.describe()]
        ok(runtime.execute(f"builtins.{name} = kept"))


@pytest.mark.at("embedded", "http")
@pytest.mark.parametrize("place", ["-1, 1, 't'", "2**70, 1, 't'", "1, 2**33, 't'", "1, 1, 't', 5, 2**35"])
def test_an_error_with_a_place_that_cannot_be(runtime: PythonRuntime, place: str) -> None:
    """A user's parser raises a SyntaxError with arbitrary numbers: that cell's error, without a span."""
    ok(runtime.execute("x = 1"))
    code = f"import sys\nraise SyntaxError('x', (sys._getframe().f_code.co_filename, {place}))"
    result = runtime.execute(code)
    assert ("SyntaxError", "kept") == (result.error and result.error.type, result.state)
    assert result.error is not None
    assert result.error.span is None
    assert "1" == ok(runtime.execute("x")).value


@pytest.mark.at("embedded", "platform")
@pytest.mark.parametrize(
    "name", [5, None, "", "a b", "\ud800", "x" * 1_001, "class", "\N{LATIN SMALL LIGATURE FI}x"]
)
def test_names_that_are_none(runtime: PythonRuntime, name: str) -> None:
    """They are refused by every operation."""
    for call in (
        runtime.retrieve,
        runtime.share,
        runtime.delete,
        lambda name: runtime.update_variable(name, 1),
    ):
        with pytest.raises(UsageError, match="identifier"):
            call(name)


@pytest.mark.at("embedded", "http")
def test_a_name_that_python_spells_otherwise(runtime: PythonRuntime) -> None:
    """As some systems' keyboards produce it, letter and dots apart: it looks right, so both spellings are shown."""
    apart = "gro\N{COMBINING DIAERESIS}sse"
    runtime.execute(f"{apart} = 3")
    with pytest.raises(UsageError, match=r"'gro\\u0308sse' as 'gr\\xf6sse'"):
        runtime.retrieve(apart)
    assert 3 == runtime.retrieve("gr\N{LATIN SMALL LETTER O WITH DIAERESIS}sse")


def test_large_code(runtime: PythonRuntime) -> None:
    """A cell larger than a packet runs like any other."""
    assert "300000" == ok(runtime.execute(f"x = '{'a' * 300_000}'\nlen(x)")).value


@pytest.mark.at("embedded", "platform")
@pytest.mark.slow
def test_installing_is_refused_at_once(runtime: PythonRuntime) -> None:
    """Also by pip itself, run as a program: it does not retry for long, and its output names the reason."""
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'nosuchthing'])"
    result = ok(runtime.execute(code, timeout=60))
    assert "this-runtime-has-no-network" in result.stdout
    assert "Retrying" not in result.stderr


@pytest.mark.at("embedded")
async def test_a_cell_whose_caller_leaves_while_the_jail_starts_does_not_run_on() -> None:
    """Its caller has left: the next cell has the runtime."""
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        cell = asyncio.ensure_future(runtime.execute("import time\ntime.sleep(600)"))
        await asyncio.sleep(0)
        cell.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell
        await asyncio.wait_for(runtime.execute("1"), PATIENCE)


@pytest.mark.at("embedded")
@pytest.mark.slow
async def test_a_cell_that_is_cancelled_as_soon_as_it_was_sent_costs_no_state() -> None:
    """The interrupt may overtake the cell: it still takes effect, and nothing has to be killed."""
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        await runtime.execute("x = 1")
        for turns in range(40):
            cell = asyncio.ensure_future(runtime.execute("import time\ntime.sleep(600)"))
            for _ in range(1 + turns % 4):
                await asyncio.sleep(0)
            cell.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cell
            assert "1" == (await asyncio.wait_for(runtime.execute("x"), PATIENCE)).value
