"""Runtimes and the process that holds them: forks, signals, garbage, many at once."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from tests.support.descriptors import all_closed
from tests.waiting import PATIENCE, until

from cenote.runtime import PythonRuntime
from cenote_security.errors import RuntimeClosedError
from cenote_worker.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures("where")


def script(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_forked_child_makes_its_own() -> None:
    """A fork of the client cannot use its parent's runtimes, gets an error, and can make new ones."""
    code = """
        import os
        from cenote.runtime import PythonRuntime
        from cenote import CenoteError
        with PythonRuntime() as runtime:
            runtime.execute("x = 1")
            pid = os.fork()
            if pid == 0:
                try:
                    runtime.execute("x")
                except CenoteError as error:
                    print("refused:", error, flush=True)
                with PythonRuntime() as own:
                    print("own:", own.execute("6 * 7").value, flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
            print("parent:", runtime.execute("x").value)
    """
    out, err = script(code).communicate(timeout=PATIENCE)
    assert "refused: this runtime belongs to the process that forked this one" in out, err
    assert "own: 42" in out
    assert "parent: 1" in out


@pytest.mark.slow
def test_signals_that_the_client_has_blocked_or_ignores_reach_cells() -> None:
    """Both survive fork and exec; Ray, for example, blocks SIGINT in its processes, and daemons ignore SIGCHLD."""
    code = """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        from cenote import PythonRuntime, SandboxPolicy
        with PythonRuntime(sandbox=SandboxPolicy(preload=(), snapshots="none")) as runtime:
            for limit in (0.2, 2, 20):  # where it has not begun by then, with more time
                result = runtime.execute("x = 1\\nprint('begun')\\nwhile True: pass", timeout=limit)
                if result.stdout:
                    break
            print(result.state, result.error.reason, runtime.execute("x").value)
            print(runtime.execute("import signal; signal.getsignal(signal.SIGTERM).name").value)
    """
    out, err = script(code).communicate(timeout=PATIENCE)
    assert "kept time 1\n'SIG_DFL'\n" == out, err


@pytest.mark.at("embedded", "platform")
@pytest.mark.slow
def test_control_c_stops_the_cell_and_the_script() -> None:
    """KeyboardInterrupt reaches the caller at once; nothing is left running."""
    process = script(
        """
        from cenote.runtime import PythonRuntime
        def listen(stream, text): print(text, flush=True)
        with PythonRuntime() as runtime:
            try:
                runtime.execute("print('go')\\nimport time\\ntime.sleep(600)", on_output=listen)
            except KeyboardInterrupt:
                print("interrupted", runtime.execute("'usable'").value, flush=True)
        """
    )
    assert process.stdout is not None
    assert "go\n" == process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert "interrupted 'usable'" in out, err
    assert 0 == process.returncode


def test_a_forgotten_runtime_is_closed() -> None:
    """Garbage collection ends the jail."""
    runtime = PythonRuntime()
    runtime.execute("1")
    supervisor = runtime.core.backend.supervisor
    assert isinstance(supervisor, Supervisor)
    supervisor.status(lambda status: None)
    del runtime
    gc.collect()
    until(lambda: supervisor.death is not None)


@pytest.mark.at("embedded", "platform")
def test_closing_twice_and_while_a_cell_runs() -> None:
    """close() from another thread ends a running cell with the reason, and can be repeated."""
    runtime = PythonRuntime()
    started = threading.Event()
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            runtime.execute("print('go')\nimport time\ntime.sleep(600)", on_output=lambda *_: started.set())
        )
    )
    thread.start()
    assert started.wait(PATIENCE)
    runtime.close()
    runtime.close()
    thread.join(PATIENCE)
    assert [("closed", "lost")] == [(result.error.reason, result.state) for result in results]
    with pytest.raises(RuntimeClosedError):
        runtime.execute("1")


@pytest.mark.slow
def test_many_runtimes_leave_nothing_behind() -> None:
    """Fifty runtimes started from threads all answer; their descriptors are gone afterwards."""
    with PythonRuntime() as first:
        first.execute("1")
        values: list[str | None] = []

        def run(n: int) -> None:
            with PythonRuntime() as runtime:
                values.append(runtime.execute(f"{n} * 2").value)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(50)]
        with all_closed():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
        assert sorted(str(n * 2) for n in range(50)) == sorted(map(str, values))


@pytest.mark.slow
def test_questions_from_many_threads() -> None:
    """Every status question is answered, for any order of answers and questions."""
    with PythonRuntime() as runtime:
        runtime.execute("x = 1")
        answers = []

        def ask() -> None:
            for _ in range(100):
                answers.append(runtime.status().processes)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert 400 == len(answers)
        assert "1" == runtime.execute("x").value


WITHOUT_DESCRIPTORS = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
from cenote import CenoteError, PythonRuntime, SandboxPolicy
policy = SandboxPolicy(preload=())
with PythonRuntime(sandbox=policy) as first:
    first.execute("x = 1")
    held = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        pass
    try:
        PythonRuntime(sandbox=policy).execute("1")
    except CenoteError as error:
        print(error)
    print(first.execute("x").value)
    for descriptor in held:
        os.close(descriptor)
    with PythonRuntime(sandbox=policy) as second:
        print(second.execute("2").value)
"""


@pytest.mark.slow
def test_a_process_without_a_free_descriptor() -> None:
    """Another runtime is refused with the reason, running ones continue, and nothing remains."""
    lines = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "Too many open files" in lines[0]
    assert ["1", "2"] == lines[1:]
