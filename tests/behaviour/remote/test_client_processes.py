"""Remote runtimes and the process that holds them: its end, its forks, its garbage collection, its threads."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable

import pytest
from tests.support.remote.small_platform import TOKEN, SmallPlatform
from tests.waiting import PATIENCE, until

from cenote.runtime import PythonRuntime
from cenote_security.errors import RejectedError, UnavailableError, UsageError

Connect = Callable[..., PythonRuntime]


def run(code: str, platform: SmallPlatform, **environment: str) -> subprocess.CompletedProcess[str]:
    """A user's script, on the platform."""
    settings = {"CENOTE_ADDRESS": platform.address, "CENOTE_TOKEN": TOKEN, **environment}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_a_script_that_closes_nothing(own_platform: SmallPlatform) -> None:
    """It ends at once and without output; the platform has nothing left of it."""
    code = """
        from cenote import PythonRuntime
        kept = PythonRuntime()
        kept.execute("x = [1]")
        reference = kept.share("x")
        print(kept.execute("x").value)
    """
    started = time.monotonic()
    done = run(code, own_platform)
    assert ("[1]\n", "", 0) == (done.stdout, done.stderr, done.returncode)
    assert time.monotonic() - started < PATIENCE / 2
    assert {} == own_platform.hosted
    assert [] == own_platform.references.list("tests", after="", limit=10)


@pytest.mark.slow
def test_the_thread_that_waits_reads(platform: SmallPlatform) -> None:
    """No further threads of gRPC are woken for a message: otherwise three or four of them are, for each cell. Without
    messages they wake some ten times a second.
    """
    code = """
        import time
        from contextlib import suppress
        from pathlib import Path
        from cenote import PythonRuntime

        def woken():
            told = []
            for each in Path("/proc/self/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # gRPC ends threads as it likes
                    lines = (each / "status").read_text().splitlines()
                    told.append(dict(line.split(":\\t") for line in lines))
            return sum(int(each["voluntary_ctxt_switches"]) for each in told if each["Name"] == "event_engine")

        with PythonRuntime() as runtime:
            runtime.execute("x = 1")
            before, since = woken(), time.monotonic()
            for _ in range(200):
                runtime.execute("x = 1")
            print(woken() - before, time.monotonic() - since)
        """
    often, seconds = map(float, run(code, platform).stdout.split())
    assert often < 2 * 200 + 50 * seconds


@pytest.mark.slow
def test_a_script_that_has_had_an_event_loop(platform: SmallPlatform) -> None:
    """The script's own event loop is closed: gRPC starts on a loop of the client."""
    code = """
        import asyncio
        from cenote import PythonRuntime
        asyncio.run(asyncio.sleep(0))
        with PythonRuntime() as runtime:
            print(runtime.execute("6 * 7").value)
    """
    done = run(code, platform)
    assert ("42\n", "", 0) == (done.stdout, done.stderr, done.returncode)


@pytest.mark.slow
def test_a_script_whose_platform_went_away(own_platform: SmallPlatform) -> None:
    """It ends without output all the same."""
    code = """
        import sys
        from cenote import PythonRuntime
        runtime = PythonRuntime()
        print(runtime.execute("1").value, flush=True)
        sys.stdin.read()
    """
    settings = {"CENOTE_ADDRESS": own_platform.address, "CENOTE_TOKEN": TOKEN}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "1\n" == process.stdout.readline()
    own_platform.close()
    _, errors = process.communicate(timeout=PATIENCE)
    assert ("", 0) == (errors, process.returncode)


@pytest.mark.slow
def test_a_forked_child(platform: SmallPlatform) -> None:
    """It gets an error at once: connections do not survive a fork. Its parent and its embedded runtimes continue."""
    code = """
        import gc, os, warnings
        from cenote import CenoteError, PythonRuntime
        warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)  # Python's own, from 3.12 on
        runtime = PythonRuntime()
        runtime.execute("x = 1")
        reference = runtime.share("x")
        pid = os.fork()
        if pid == 0:
            del reference
            gc.collect()
            for attempt in (lambda: runtime.execute("x"), PythonRuntime):
                try:
                    attempt()
                except CenoteError as error:
                    print(type(error).__name__, error, flush=True)
            with PythonRuntime(address="embedded") as own:
                print("own:", own.execute("6 * 7").value, flush=True)
            os._exit(0)
        print(os.waitpid(pid, 0)[1], runtime.execute("x").value, flush=True)
        runtime.update_variable("x", reference)
    """
    done = run(code, platform)
    first, second, own, parent = done.stdout.splitlines()
    assert first.startswith("RuntimeClosedError this runtime belongs to the process that forked")
    assert second.startswith("RuntimeClosedError the process that forked this one is connected")
    assert ("own: 42", "0 1", "", 0) == (own, parent, done.stderr, done.returncode)


@pytest.mark.slow
def test_a_script_that_is_interrupted_while_it_connects() -> None:
    """KeyboardInterrupt reaches a caller that waits for a server which accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code = "print('go', flush=True)\nfrom cenote import PythonRuntime\nPythonRuntime().execute('1')"
        environment = {**os.environ, "CENOTE_ADDRESS": f"127.0.0.1:{silent.getsockname()[1]}"}
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        connection.close()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode in (1, 130, -signal.SIGINT)


def test_a_forgotten_runtime_is_deleted(own_platform: SmallPlatform) -> None:
    """Garbage collection deletes it on the platform."""
    runtime = PythonRuntime(address=own_platform.address, token=TOKEN)
    runtime.execute("1")
    assert 1 == len(own_platform.hosted)
    del runtime
    gc.collect()
    until(lambda: {} == own_platform.hosted)


def test_threads_that_start_one_runtime(own_platform: SmallPlatform, connect: Connect) -> None:
    """However many threads: it is created once, and all of them get an answer."""
    runtime = connect(own_platform)
    values: list[str | None] = []
    threads = [
        threading.Thread(target=lambda n=n: values.append(runtime.execute(f"{n}").value)) for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(map(str, range(12))) == sorted(map(str, values))
    assert 1 == len(own_platform.hosted)


@pytest.mark.slow
def test_importing_costs_no_grpc() -> None:
    """Unused modules are not loaded, and the environment is not changed."""
    code = """
        import os, sys
        before = dict(os.environ)
        import cenote
        from cenote.runtime import PythonRuntime
        cenote.connect("localhost:1", token="t")
        print("grpc" in sys.modules, before == dict(os.environ))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert "False True\n" == done.stdout


def test_a_closed_port() -> None:
    """Where no server listens, the error says so at once, and how to start a platform."""
    with (
        PythonRuntime(address="127.0.0.1:1", token="t") as runtime,
        pytest.raises(UnavailableError, match=r"no platform answers at 127\.0\.0\.1:1 .*`cenote up`"),
    ):
        runtime.execute("1")


def test_a_server_of_something_else(platform: SmallPlatform) -> None:
    """A gRPC server that is no gateway is reported as such."""
    with (
        PythonRuntime(address=platform.runtimes_address, token=TOKEN) as runtime,
        pytest.raises(UsageError, match="is not a Cenote platform"),
    ):
        runtime.execute("1")


def test_a_wrong_token(platform: SmallPlatform) -> None:
    """Nothing is created, and nothing is retried."""
    with (
        PythonRuntime(address=platform.address, token="wrong") as runtime,
        pytest.raises(RejectedError, match="an unknown token"),
    ):
        runtime.execute("1")
