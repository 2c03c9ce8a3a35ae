"""Programs beside a namespace: their inputs, their results, and that cells continue."""

from __future__ import annotations

import asyncio
import inspect
import signal
import sys
import threading
import time
from typing import Any

import pytest
from tests.waiting import PATIENCE, until, until_async

from cenote.runtime import AsyncPythonRuntime, PythonRuntime
from cenote_security.errors import RuntimeClosedError, UsageError
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.usefixtures("where")

LONG = "3600"


@pytest.mark.at("embedded", "http")
def test_a_text_is_for_the_shell(anywhere: PythonRuntime) -> None:
    """Its streams are separate, and its exit code is the program's."""
    result = anywhere.run("echo out; echo err >&2; exit 4")
    assert (4, "out\n", "err\n", None, False) == (
        result.exit_code,
        result.stdout,
        result.stderr,
        result.killed_by,
        result.timed_out,
    )
    assert not result.success
    assert result.duration > 0


@pytest.mark.at("embedded", "http")
def test_a_list_is_a_program_and_its_arguments(anywhere: PythonRuntime) -> None:
    assert "$HOME *\n" == anywhere.run(["echo", "$HOME *"]).stdout


def test_input_environment_and_folder(anywhere: PythonRuntime) -> None:
    """Without input it reads nothing; variables are added to those of the jail."""
    assert b"a\0b" == anywhere.run(["cat"], stdin=b"a\0b").stdout_bytes
    assert "" == anywhere.run(["cat"]).stdout
    assert "7 set\n" == anywhere.run("echo $SEVEN ${HOME:+set}", env={"SEVEN": "7"}).stdout
    anywhere.run("mkdir -p sub")
    assert anywhere.run("pwd").stdout.strip() + "/sub\n" == anywhere.run("pwd", cwd="sub").stdout
    assert "/\n" == anywhere.run("pwd", cwd="/").stdout


@pytest.mark.at("embedded", "http")
def test_it_shares_the_files_of_cells(anywhere: PythonRuntime) -> None:
    anywhere.execute("open('from_cell', 'w').write('1')")
    assert "1" == anywhere.run("cat from_cell; echo 2 > from_program").stdout
    assert "'2\\n'" == anywhere.execute("open('from_program').read()").value


@pytest.mark.at("embedded", "http")
@pytest.mark.parametrize(
    ("command", "arguments", "expected", "said"),
    [
        (["no-such-program"], {}, 127, "no-such-program: No such file"),
        (["."], {}, 126, "Permission denied"),
        (["true"], {"cwd": "no-such-folder"}, 127, "no-such-folder: No such file"),
        ("kill -SEGV $$", {}, None, ""),
    ],
)
def test_what_goes_wrong_is_in_the_result(
    strict: PythonRuntime, command: Any, arguments: Any, expected: int | None, said: str
) -> None:
    """No exception is raised; the codes are those of a shell."""
    result = strict.run(command, **arguments)
    assert (expected, True) == (result.exit_code, said in result.stderr)
    assert ("signal 11" if expected is None else None) == result.killed_by


@pytest.mark.at("embedded", "http")
def test_a_cell_that_runs_goes_on_and_keeps_nobody_waiting(anywhere: PythonRuntime) -> None:
    """The cell waits for the program's action: in sequence, neither would end."""
    cell = threading.Thread(
        target=anywhere.execute,
        args=("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)", PATIENCE),
    )
    cell.start()
    assert 0 == anywhere.run("touch go").exit_code
    cell.join(PATIENCE)
    assert not cell.is_alive()
    anywhere.run("rm go")


@pytest.mark.at("embedded", "http")
def test_time_over_ends_it(anywhere: PythonRuntime) -> None:
    result = anywhere.run(["sleep", LONG], timeout=0.2)
    assert (None, True, "timeout") == (result.exit_code, result.timed_out, result.killed_by)


def test_a_timeout_of_the_policy_holds_for_programs() -> None:
    policy = SandboxPolicy(preload=(), cell_timeout=0.2)
    with PythonRuntime(sandbox=policy) as runtime:
        assert runtime.run(["sleep", LONG]).timed_out


@pytest.mark.at("embedded", "http")
def test_output_is_bounded_and_has_both_ends(strict: PythonRuntime) -> None:
    """At the limit nothing is missing; one byte more, and one byte is."""
    assert ("12345678", 0) == (
        (exact := strict.run("printf 12345678", max_output=8)).stdout,
        exact.omitted,
    )
    more = strict.run("printf 123456789; printf abcdefghi >&2", max_output=8)
    assert ("12346789", "abcdfghi", 2) == (more.stdout, more.stderr, more.omitted)
    flood = strict.run("yes | head -c 30000000; echo end", max_output=1000)
    assert (30_000_004 - 1000, True) == (flood.omitted, flood.stdout.endswith("end\n"))


def test_what_is_not_text_is_there_as_bytes(strict: PythonRuntime) -> None:
    result = strict.run("printf '\\377'")
    assert ("�", b"\xff") == (result.stdout, result.stdout_bytes)


def test_signals_of_the_interpreter_are_not_the_programs(strict: PythonRuntime) -> None:
    """Python ignores SIGPIPE: a program that inherited this would write forever."""
    assert "0000000000000000" in strict.run("grep -E 'SigIgn|SigBlk' /proc/self/status | sort -u").stdout
    assert 0 == strict.run("yes | head -n 1").exit_code


def test_no_descriptor_but_its_streams(strict: PythonRuntime) -> None:
    """None of the attendant's or the supervisor's."""
    found = strict.run([sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"])
    assert "['0', '1', '2', '3']\n" == found.stdout  # 3 is the listing


def test_it_has_the_walls_of_a_cell(strict: PythonRuntime) -> None:
    """Everything that the kernel shows of both is the same; it does not show the domain of Landlock."""
    wanted = [
        "NoNewPrivs",
        "Seccomp",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "Uid",
        "Gid",
        "Groups",
        "NSpid",
    ]
    read = f"""
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
print({{name: lines[name].split() for name in {wanted} if name != "NSpid"}})
import resource
print([resource.getrlimit(number) for number in range(16)])
import os
print(sorted(os.readlink("/proc/self/ns/" + name) for name in os.listdir("/proc/self/ns")))
"""
    cell, program = strict.execute(read), strict.run([sys.executable, "-c", read])
    assert cell.success
    assert cell.stdout == program.stdout


# -- spawned ----------------------------------------------------------------------------------------------


def test_input_and_output_while_it_runs(anywhere: PythonRuntime) -> None:
    with anywhere.spawn(["cat"]) as process:
        process.send_input("first\n")
        assert b"first\n" == process.stdout.read_some()
        process.send_input(b"second\n")
        process.close_stdin()
        assert ("second\n", 0) == ((result := process.wait(PATIENCE)).stdout, result.exit_code)
        assert not process.running


def test_both_streams_as_they_come(strict: PythonRuntime) -> None:
    process = strict.spawn("echo one; read x; echo two >&2; read x; echo three")
    found = []
    for stream, data in process:
        found.append((stream, data))
        if len(found) < 3:
            process.send_input("\n")
    assert [("stdout", b"one\n"), ("stderr", b"two\n"), ("stdout", b"three\n")] == found
    assert 0 == process.wait().exit_code


def test_the_streams_by_themselves(strict: PythonRuntime) -> None:
    process = strict.spawn("echo out; echo err >&2")
    assert (b"err\n", b"out\n") == (process.stderr.read(), process.stdout.read())


def test_a_slow_reader_makes_only_its_program_wait(strict: PythonRuntime) -> None:
    """Reading stops at a bound, and nothing is lost when it continues."""
    with strict.spawn("head -c 20000000 /dev/zero; echo > done") as process:
        until(lambda: process._feed._backlog.stopped)
        assert "no\n" == strict.run("test -e done && echo yes || echo no").stdout
        assert "2" == strict.execute("1 + 1").value
        assert 20_000_000 == len(process.stdout.read())
    strict.run("rm -f done")


def test_a_kill_needs_no_reader(anywhere: PythonRuntime) -> None:
    with anywhere.spawn("cat /dev/zero") as process:
        until(lambda: process._feed._backlog.stopped)
    assert "kill" == process.wait(PATIENCE).killed_by


def test_more_input_than_a_pipe_holds(strict: PythonRuntime) -> None:
    """It is sent as the program reads it; unread input is not an error."""
    data = b"x" * 3_000_000
    assert "3000000\n" == strict.run("wc -c", stdin=data).stdout
    assert 0 == strict.run("true", stdin=data).exit_code


def test_what_reads_no_more_takes_no_input(strict: PythonRuntime) -> None:
    process = strict.spawn("true")
    process.wait(PATIENCE)
    with pytest.raises(UsageError, match="input"):
        process.send_input("x")


@pytest.mark.parametrize("number", [signal.SIGTERM, "TERM", "sigterm", 15])
def test_signals_reach_its_group(strict: PythonRuntime, number: Any) -> None:
    process = strict.spawn("trap 'echo caught; exit 3' TERM; echo ready; while true; do sleep 0.05; done")
    assert b"ready\n" == process.stdout.read_some()
    process.signal(number)
    assert (3, "caught\n") == ((result := process.wait(PATIENCE)).exit_code, result.stdout)


@pytest.mark.parametrize(
    "command",
    [
        ["setsid", "sh", "-c", "echo began; sleep 0.1; echo out; exit 3"],
        "exec setsid sh -c 'echo began; sleep 0.1; echo out; exit 3'",
        ["python3", "-c", "import os, sys; os.setsid(); print('began\\nout', flush=True); sys.exit(3)"],
    ],
)
def test_a_program_may_begin_a_session(walled: PythonRuntime, command: Any) -> None:
    """It leads no process group, so `setsid` need not fork: output and status are those of its command."""
    result = walled.run(command)
    assert (3, "began\nout\n") == (result.exit_code, result.stdout)


def test_a_program_that_began_a_session_is_fed_signalled_and_killed(walled: PythonRuntime) -> None:
    code = "trap 'echo caught; exit 3' TERM; echo ready; read x; echo $x; while true; do sleep 0.05; done"
    with walled.spawn(["setsid", "sh", "-c", code]) as process:
        assert b"ready\n" == process.stdout.read_some()
        process.send_input("fed\n")
        assert b"fed\n" == process.stdout.read_some()
        process.signal("TERM")
        assert (3, "caught\n") == ((result := process.wait(PATIENCE)).exit_code, result.stdout)
    with walled.spawn(["setsid", "sh", "-c", "echo ready; exec sleep 3600"]) as process:
        assert b"ready\n" == process.stdout.read_some()
    assert "kill" == process.wait(PATIENCE).killed_by


def test_its_children_share_its_process_group(anywhere: PythonRuntime) -> None:
    """A signal to it reaches them; its own `kill 0` ends them and it, and nothing else."""
    process = anywhere.spawn(
        "trap : TERM; sh -c 'trap \"echo child\" TERM; echo up; sleep 3600 & wait' & wait; wait"
    )
    assert b"up\n" == process.stdout.read_some()
    process.signal("TERM")
    assert b"child\n" == process.stdout.read_some()
    process.kill()
    process.wait(PATIENCE)
    assert "signal 15" == anywhere.run("kill 0; sleep 3600", timeout=PATIENCE).killed_by
    assert "1" == anywhere.execute("x").value


def test_waiting_has_a_limit(strict: PythonRuntime) -> None:
    """A wait ends at its limit; the process continues."""
    with strict.spawn(["sleep", LONG]) as process:
        with pytest.raises(TimeoutError, match="goes on after"):
            process.wait(0.05)
        assert process.running
    assert "kill" == process.wait().killed_by


def test_its_number_is_that_of_the_jail(strict: PythonRuntime) -> None:
    process = strict.spawn("echo $$")
    assert f"{process.pid}\n" == process.wait(PATIENCE).stdout


def test_a_terminal(walled: PythonRuntime) -> None:
    """Its streams are one, a program sees its size, and ^C is a signal."""
    program = (
        "trap 'echo caught; stty size; exit 5' INT; stty size; echo ready; while true; do sleep 0.05; done"
    )
    with walled.spawn(program, pty=(30, 100)) as process:
        seen = b""
        while b"ready" not in seen:
            seen += process.stdout.read_some()
        assert b"30 100" in seen
        process.resize(10, 20)
        process.send_input(b"\x03")
        result = process.wait(PATIENCE)
    assert (5, True, True) == (result.exit_code, "caught" in result.stdout, "10 20" in result.stdout)


def test_the_end_of_input_at_a_terminal(strict: PythonRuntime) -> None:
    with strict.spawn(["cat"], pty=(24, 80)) as process:
        process.send_input("line\n")
        process.close_stdin()
        assert 0 == process.wait(PATIENCE).exit_code


CLOSED_TERMINAL = """
import os, time
os.write(1, b"line")
for each in (0, 1, 2):
    os.close(each)
time.sleep(0.5)  # for what would end it
os._exit(7)
"""


def test_a_program_outlives_the_use_of_its_terminal(strict: PythonRuntime) -> None:
    """A program that closes its ends of it, as C libraries do at exit, gets no SIGHUP."""
    with strict.spawn(["python", "-c", CLOSED_TERMINAL], pty=(24, 80)) as process:
        result = process.wait(PATIENCE)
    assert (7, None, "line") == (result.exit_code, result.killed_by, result.stdout)


def test_no_terminal_in_gvisor(gvisor: PythonRuntime) -> None:
    with pytest.raises(UsageError, match="terminal"):
        gvisor.spawn(["cat"], pty=(24, 80))


def a_tick_later() -> None:
    """The kernel's process start times have ticks of a hundredth of a second."""
    began = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**7
    until(lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**7 > began + 1)


# -- together with runtime operations ---------------------------------------------------------------------


@pytest.fixture
def own() -> Any:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        runtime.execute("x = 1")
        yield runtime


def test_a_rollback_ends_what_began_after_the_state(own: PythonRuntime) -> None:
    """Older ones stay."""
    with own.spawn(["sleep", LONG]) as older:
        assert older.pid
        a_tick_later()
        own.execute("x = 2")
        step = own.snapshot().step
        a_tick_later()
        younger = own.spawn(["sleep", LONG])
        assert younger.pid
        own.execute("x = 3")
        own.rollback(step)
        assert "rollback" == younger.wait(PATIENCE).killed_by
        assert older.running
        assert "echo\n" == own.run(["echo", "echo"]).stdout


def test_what_is_older_keeps_what_it_has_started_since(own: PythonRuntime) -> None:
    """A server from before the state continues with its newer children."""
    with own.spawn("echo up; read x; sleep 3600 & wait; echo over") as older:
        assert b"up\n" == older.stdout.read_some()
        a_tick_later()
        own.execute("x = 2")
        step = own.snapshot().step
        older.send_input("\n")
        until(lambda: own.status().processes >= 4)  # worker, attendant, shell, sleep
        own.execute("x = 3")
        own.rollback(step)
        assert "2" == own.execute("x").value
        assert older.running
        assert "0\n" == own.run("true; echo $?").stdout
        assert older.running


def test_a_worker_that_dies_takes_what_began_since(own: PythonRuntime) -> None:
    own.snapshot()  # a state is not kept before the runtime is idle
    a_tick_later()
    process = own.spawn(["sleep", LONG])
    assert process.pid
    assert not own.execute("import os; os.kill(os.getpid(), 11)").success
    assert "worker" == process.wait(PATIENCE).killed_by
    assert 0 == own.run("true").exit_code


def test_a_runtime_that_ends_takes_its_programs(own: PythonRuntime) -> None:
    process = own.spawn(["sleep", LONG])
    assert process.pid
    own.reset()
    assert "jail" == process.wait(PATIENCE).killed_by
    own.close()
    with pytest.raises(RuntimeClosedError):
        own.run("true")


def test_a_fork_has_none_of_the_programs(own: PythonRuntime) -> None:
    with own.spawn(["sleep", LONG]) as process, own.fork() as branch:
        assert process.pid
        assert "1" == branch.execute("x").value
        assert 1 == branch.status().processes
        assert process.running


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        (b"true", {}, "a command is"),
        ([], {}, "a command is"),
        ([""], {}, "names the program"),
        (["true", 1], {}, "an argument is a text"),
        ("a\0b", {}, "zero byte"),
        ("true", {"env": {"A=B": "x"}}, "no '='"),
        ("true", {"env": {"A": 1}}, "a variable is a text"),
        ("true", {"env": ["A=1"]}, "env is a dict"),
        ("true", {"cwd": 1}, "cwd is a path"),
        ("true", {"timeout": -1}, "a timeout"),
        ("true", {"max_output": -1}, "max_output"),
        ("true", {"stdin": 1}, "input is bytes or text"),
        ("true", {"stdin": "\ud800"}, "lone surrogate"),
        (["true", "x" * 5_000_000], {}, "at most"),
    ],
)
def test_wrong_arguments(strict: PythonRuntime, command: Any, arguments: Any, said: str) -> None:
    """Each is refused before anything runs, in one sentence."""
    with pytest.raises(UsageError, match=said):
        strict.run(command, **arguments)


def test_wrong_signals_and_sizes(strict: PythonRuntime) -> None:
    with strict.spawn(["sleep", LONG]) as process:
        for wrong in (0, 65, "NOPE", True):
            with pytest.raises(UsageError, match="signal"):
                process.signal(wrong)
        with pytest.raises(UsageError, match="rows and columns"):
            process.resize(0, 80)
    for wrong in (80, (80,), (0, 80), "24x80"):
        with pytest.raises(UsageError, match="rows and columns"):
            strict.spawn("true", pty=wrong)  # type: ignore[arg-type]


def test_more_than_the_kernel_takes_is_said(strict: PythonRuntime) -> None:
    """The kernel limits a single argument to 128 KiB."""
    result = strict.run(["true", "x" * 200_000])
    assert (126, True) == (result.exit_code, "Argument list too long" in result.stderr)


# -- coroutines -------------------------------------------------------------------------------------------


async def test_a_coroutine_that_is_cancelled_takes_its_program() -> None:
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        await runtime.execute("x = 1")
        supervisor = runtime.core.backend.supervisor  # type: ignore[attr-defined]
        running = asyncio.create_task(runtime.run(["sleep", LONG]))
        await until_async(lambda: supervisor.programs.running)
        running.cancel()
        await until_async(lambda: not supervisor.programs.running)
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_both_faces_run_alike() -> None:
    """Both APIs accept the same arguments, and many run at once."""
    for name in ("run", "spawn"):
        one, other = (inspect.signature(getattr(face, name)) for face in (PythonRuntime, AsyncPythonRuntime))
        assert one.parameters == other.parameters
    async with AsyncPythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        results = await asyncio.gather(*(runtime.run(f"echo {number}") for number in range(8)))
        assert [f"{number}\n" for number in range(8)] == [each.stdout for each in results]
        async with await runtime.spawn("echo out; echo err >&2; cat") as process:
            await process.send_input("in")
            process.close_stdin()
            found = {stream: b"" for stream in ("stdout", "stderr")}
            async for stream, data in process:
                found[stream] += data
            assert {"stdout": b"out\nin", "stderr": b"err\n"} == found
            with pytest.raises(UsageError):
                await process.send_input("late")
        with pytest.raises(TimeoutError):
            async with await runtime.spawn(["sleep", LONG]) as process:
                await process.wait(0.05)
        assert "kill" == (await process.wait(PATIENCE)).killed_by
