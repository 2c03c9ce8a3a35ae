"""Programs beside a namespace of a platform: the same as locally, over a separate stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.remote.small_platform import TOKEN, SmallPlatform
from tests.waiting import PATIENCE, until

from cenote.runtime import AsyncPythonRuntime, PythonRuntime
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy

LONG = "3600"
SMALL = SandboxPolicy(preload=())


@pytest.fixture(scope="module")
def platform() -> Iterator[SmallPlatform]:
    platform = SmallPlatform().start()
    yield platform
    platform.close()


@pytest.fixture(scope="module")
def runtime(platform: SmallPlatform) -> Iterator[PythonRuntime]:
    with PythonRuntime(address=platform.address, token=TOKEN, sandbox=SMALL) as runtime:
        runtime.execute("x = 1")
        yield runtime


def test_a_program_and_its_result(runtime: PythonRuntime) -> None:
    result = runtime.run(
        "cat; echo err >&2; echo $A; pwd; exit 3", stdin="in", env={"A": "é\udcff"}, cwd="/tmp"
    )
    assert (3, b"in\xc3\xa9\xff\n/tmp\n", "err\n") == (
        result.exit_code,
        result.stdout_bytes,
        result.stderr,
    )


def test_time_and_kills(runtime: PythonRuntime) -> None:
    assert runtime.run(["sleep", LONG], timeout=0.1).timed_out
    with runtime.spawn(["sleep", LONG]) as process:
        assert process.pid > 1
    assert "kill" == process.wait(PATIENCE).killed_by


def test_a_conversation(runtime: PythonRuntime) -> None:
    with runtime.spawn(["cat"]) as process:
        process.send_input("first\n")
        assert b"first\n" == process.stdout.read_some()
        process.close_stdin()
        assert 0 == process.wait(PATIENCE).exit_code
    with pytest.raises(UsageError):
        process.send_input("late")


def test_much_in_and_out(runtime: PythonRuntime) -> None:
    """More than any buffer on the way, with a late reader."""
    data = b"0123456789abcdef" * 400_000
    assert data == runtime.run(["cat"], stdin=data).stdout_bytes
    with runtime.spawn("head -c 20000000 /dev/zero; echo > done") as process:
        assert "no\n" == runtime.run("sleep 0.2; test -e done && echo yes || echo no").stdout
        assert 20_000_000 == len(process.stdout.read())
    runtime.run("rm done")


def test_a_kill_needs_no_reader(runtime: PythonRuntime) -> None:
    """With any data waiting to be read or written."""
    with runtime.spawn("cat /dev/zero") as process:
        until(lambda: process._feed._backlog.stopped)
    assert "kill" == process.wait(PATIENCE).killed_by


def test_a_terminal_elsewhere(runtime: PythonRuntime) -> None:
    with runtime.spawn("stty size; read x; stty size", pty=(30, 100)) as process:
        assert b"30 100\r\n" == process.stdout.read_some()
        process.resize(10, 20)
        process.send_input("\n")
        assert "10 20" in process.wait(PATIENCE).stdout


def test_it_is_a_step_there(runtime: PythonRuntime) -> None:
    runtime.run("echo recorded")
    last = list(runtime.core.read_history().tree)[-1]
    assert ("process", "!echo recorded", "recorded\n") == (last.kind, last.code, last.stdout)


def test_an_author_there(runtime: PythonRuntime) -> None:
    with runtime.attach("ann") as ann:
        assert "hi\n" == ann.run("echo hi").stdout
    assert "ann" == list(runtime.core.read_history().tree)[-1].author


def test_a_client_that_goes_takes_its_programs(platform: SmallPlatform) -> None:
    with PythonRuntime(address=platform.address, token=TOKEN, sandbox=SMALL) as runtime:
        process = runtime.spawn(["sleep", LONG])
        assert process.pid
        hosted = list(platform.hosted.values())[-1]
        supervisor = hosted.supervisor
        assert supervisor is not None
        assert supervisor.programs.running
    until(lambda: not supervisor.programs.running)
    until(lambda: not process.running)


def test_one_that_stays_loses_those_of_a_client_that_goes(platform: SmallPlatform) -> None:
    with PythonRuntime(address=platform.address, token=TOKEN, sandbox=SMALL, name="stays") as runtime:
        process = runtime.spawn(["sleep", LONG])
        assert process.pid
    until(lambda: not process.running)
    assert "kill" == process.wait(PATIENCE).killed_by


def test_coroutines(platform: SmallPlatform) -> None:
    async def work() -> list[bytes]:
        async with AsyncPythonRuntime(address=platform.address, token=TOKEN, sandbox=SMALL) as runtime:
            results = await asyncio.gather(*(runtime.run(f"echo {number}") for number in range(5)))
            async with await runtime.spawn(["cat"]) as process:
                await process.send_input(b"x")
                first = await process.stdout.read_some()
                assert await process.pid() > 1
            return [*(each.stdout_bytes for each in results), first]

    assert [b"0\n", b"1\n", b"2\n", b"3\n", b"4\n", b"x"] == asyncio.run(work())
