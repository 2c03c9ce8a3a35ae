"""Code that a cell leaves in the process runs in cells: between them it meets no kernel code; no state is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from tests.waiting import until

from cenote.runtime import ExecutionResult, Function, PythonRuntime

SENT_LATER = """
import os, signal, subprocess
if os.path.exists('sent'): os.remove('sent'); os.remove('go')
wait = 'until [ -e go ]; do sleep 0.01; done; '
sender = subprocess.Popen(['sh', '-c', f'{wait} kill -%s {os.getpid()}; touch sent'])
"""
"""A signal that arrives after the cell, when the test requests it."""

COLLECTED_LATER = """
import gc
gc.collect()
gc.set_threshold(60, 1, 1)
gc.disable()
"""
"""Called when objects are made after the cell, once that has turned the collector on."""


def add(one: int, other: int) -> int:
    return one + other


@pytest.fixture(scope="module")
def shared() -> Iterator[PythonRuntime]:
    with PythonRuntime(functions=[Function(add, host=True)]) as runtime:
        yield runtime


@pytest.fixture
def runtime(shared: PythonRuntime) -> PythonRuntime:
    """Without leftovers of another test."""
    shared.reset()
    return shared


def good(runtime: PythonRuntime, code: str) -> ExecutionResult:
    result = runtime.execute(code)
    assert result.success, result.error
    assert "cenote_worker" not in result.stderr
    return result


def send(runtime: PythonRuntime) -> None:
    """Makes the child of `SENT_LATER` send its signal, and returns when it has."""
    runtime.files.write("go", b"")
    until(lambda: any(each.name == "sent" for each in runtime.files.list()))


def is_kept(runtime: PythonRuntime, value: str = "7") -> None:
    """A crash costs its own cell only."""
    crashed = runtime.execute("kept = 0; import os; os._exit(1)")
    assert "the namespace is as it was before the cell" in str(crashed.error)
    assert value == good(runtime, "kept").value


@pytest.mark.sweep
@pytest.mark.parametrize("threads", ["", "numpy.ones((600, 600)) @ numpy.ones((600, 600))", "idle()"])
@pytest.mark.parametrize("signal", ["ALRM", "USR1", "CHLD"])
def test_a_handler_that_raises_is_told_with_the_next_cell(
    runtime: PythonRuntime, signal: str, threads: str
) -> None:
    """The cell still runs. A thread of a library takes the signal where the main thread does not."""
    handled = f"def handle(*_): raise ValueError('boom')\nsignal.signal(signal.SIG{signal}, handle)\n"
    pool = "from concurrent.futures import ThreadPoolExecutor\nimport numpy\npool = ThreadPoolExecutor(2)\n"
    idle = "def idle(): list(pool.map(str, range(4)))\n"
    good(runtime, SENT_LATER % signal + pool + idle + handled + f"{threads}\nkept = 7")
    send(runtime)
    result = good(runtime, "kept + 1")
    assert "8" == result.value
    assert f"Exception in the handler of SIG{signal}, which came before this cell" in result.stderr
    assert ", in handle\n    def handle(*_): raise" in result.stderr
    assert "ValueError: boom" in result.stderr
    is_kept(runtime)


@pytest.mark.parametrize("signal", ["ALRM", "PROF", "TERM", "USR2"])
def test_a_signal_that_nothing_handles_ends_nothing(runtime: PythonRuntime, signal: str) -> None:
    """Plain Python would end at its prompt. The process is the same one afterwards."""
    before = good(runtime, SENT_LATER % signal + "kept = 7\nos.getpid()")
    send(runtime)
    after = good(runtime, "os.getpid()")
    assert before.value == after.value
    assert f"[SIG{signal} came before this cell, and no function handles it" in after.stderr
    assert "" == good(runtime, "1").stderr
    is_kept(runtime)


def test_a_handler_runs_once_in_the_next_cell(runtime: PythonRuntime) -> None:
    """It is the user's, and works on the namespace: a request between two cells does not trigger it."""
    good(runtime, SENT_LATER % "USR1" + "seen = []\nsignal.signal(signal.SIGUSR1, lambda *_: seen.append(1))")
    send(runtime)
    assert [] == runtime.retrieve("seen")
    assert "[1]" == good(runtime, "seen").value
    assert "[1]" == good(runtime, "seen").value


def test_a_handler_that_never_ends_costs_one_cell(runtime: PythonRuntime) -> None:
    """That cell's time limit ends it."""
    code = "def handle(*_):\n    while True: pass\nsignal.signal(signal.SIGUSR1, handle)\nkept = 7"
    good(runtime, SENT_LATER % "USR1" + code)
    send(runtime)
    result = runtime.execute("kept = 0", timeout=0.5)
    assert result.error is not None
    assert "TimeoutError" == result.error.type
    assert "7" == good(runtime, "kept").value


FLAGS = """
import ctypes, signal, threading
class Action(ctypes.Structure):
    _fields_ = [('handler', ctypes.c_void_p), ('mask', ctypes.c_ulong * 16), ('flags', ctypes.c_int)]
def restarts(number):
    found = (ctypes.c_char * 256)()
    assert ctypes.CDLL(None).sigaction(number, None, found) == 0
    return bool(Action.from_buffer(found).flags & 0x10000000)
signal.signal(signal.SIGUSR1, lambda *_: None); signal.siginterrupt(signal.SIGUSR1, False)
signal.signal(signal.SIGUSR2, lambda *_: None)
over = threading.Event(); thread = threading.Thread(target=over.wait); thread.start()
restarts(signal.SIGUSR1), restarts(signal.SIGUSR2)
"""


def test_what_siginterrupt_has_set_stays(runtime: PythonRuntime) -> None:
    """With another thread the handlers are replaced between two cells, which sets the opposite."""
    looked = "restarts(signal.SIGUSR1), restarts(signal.SIGUSR2)"
    assert ["(True, False)"] * 3 == [good(runtime, code).value for code in (FLAGS, looked, looked)]
    assert "(True, False)" == good(runtime, f"over.set(); thread.join(); {looked}").value


def test_a_signal_that_the_user_blocks_stays_blocked(runtime: PythonRuntime) -> None:
    """The mask is the user's in cells, except for the signal that interrupts them."""
    blocked = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGINT})"
    good(runtime, f"import signal\n{blocked}")
    assert (
        "[<Signals.SIGUSR1: 10>]"
        == good(runtime, "sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))").value
    )
    stopped = runtime.execute("while True: pass", timeout=0.5)
    assert "kept" == stopped.state


@pytest.mark.sweep
@pytest.mark.parametrize(
    "dropped",
    [
        "class D:\n    def __del__(self): {}\n",
        "import weakref\nclass D: pass\ndef call(): {}\n",
        "def call(*_): {}\ngc.callbacks.append(call)\nclass D: pass\n",
    ],
    ids=["__del__", "weakref", "callback"],
)
@pytest.mark.parametrize("what", ["os._exit(3)", "ctypes.string_at(0)", "exec('while True: pass')"])
def test_what_the_collector_calls_costs_no_state(runtime: PythonRuntime, dropped: str, what: str) -> None:
    """It ends the process, or never ends: the state after the cell that left it is copied first."""
    made = "d = D()\nd.self = d\n"
    finalized = "weakref.finalize(d, call)\n" if "weakref" in dropped else ""
    good(runtime, "import ctypes, os\nkept = 1")
    good(runtime, COLLECTED_LATER + dropped.format(what) + made + finalized + "kept = 7\ndel d\ngc.enable()")
    for _ in range(3):
        runtime.describe()
    ended = runtime.execute("[[] for _ in range(500)]", timeout=0.5)
    assert not ended.news
    assert ended.success or "the namespace is as it was before the cell" in str(ended.error)
    assert 7 == runtime.retrieve("kept")


def test_what_the_collector_calls_is_told_in_the_users_terms(runtime: PythonRuntime) -> None:
    """The place and the error, with the line of the cell."""
    code = "import gc\nclass D:\n    def __del__(self): raise ValueError('boom')\nd = D(); d.self = d"
    good(runtime, code)
    told = good(runtime, "del d; gc.collect()").stderr
    assert "Exception ignored in <function D.__del__" in told
    assert ", line 3, in D.__del__\n    def __del__(self): raise ValueError('boom')" in told


def test_many_exceptions_of_callbacks_are_counted(runtime: PythonRuntime) -> None:
    """The collector may call one for each new object; the streams stay in order."""
    good(runtime, "import gc\ndef call(*_): raise ValueError('boom')\ngc.callbacks.append(call)\nkept = 7")
    result = good(runtime, "for _ in range(100): print('line', flush=True); gc.collect()")
    assert "line\n" * 100 == result.stdout
    assert 20 == result.stderr.count("ValueError: boom")
    assert "more exceptions were ignored, of destructors and callbacks]" in result.stderr
    good(runtime, "gc.callbacks.clear()")
    is_kept(runtime)


def test_an_audit_hook_is_asked_of_the_users_program_only(runtime: PythonRuntime) -> None:
    """It cannot be removed, and one that raises would make every kernel operation raise."""
    hook = """
import sys
seen = []
def hook(event, _):
    seen.append(event)
    if event.startswith('{}'): raise OSError
"""
    for event in ("open", "socket", "os.", "fcntl", "sys._", "gc", "marshal"):
        good(runtime, hook.format(event) + "sys.addaudithook(hook)\nkept = 7")
    runtime.files.write("there", b"")
    runtime.describe()
    failed = runtime.execute("open('there')")
    assert failed.error is not None
    assert ("OSError", "open") == (
        failed.error.type,
        good(runtime, "[e for e in seen if e == 'open'][0]").value[1:-1],
    )
    is_kept(runtime)


@pytest.mark.parametrize("name", ["sys.setprofile", "sys.settrace"])
def test_a_profile_function_ends_with_its_cell(runtime: PythonRuntime, name: str) -> None:
    """Its exceptions are errors of the cell."""
    result = good(runtime, f"import sys\ndef note(*_): pass\n{name}(note)\nkept = 7")
    assert f"[{name} ends with the cell]" in result.stderr
    failed = runtime.execute(f"def fail(*_): raise ValueError('boom')\n{name}(fail)\nlen('')\nint('1')")
    assert failed.error is not None
    assert ", line 1, in fail\n    def fail" in failed.error.traceback
    is_kept(runtime)


def test_threads_of_the_kernels_have_no_profile_function(runtime: PythonRuntime) -> None:
    """One that raises would end the thread that delivers the answers of host functions."""
    code = "import threading\ndef fail(*_): raise ValueError('boom')\n"
    good(runtime, code + "threading.setprofile(fail); threading.settrace(fail)\nkept = 7")
    result = good(runtime, "print('line\\n' * 3, end='')\nfor _ in range(600): print(_)\nadd(3, 4)")
    assert ("7", "") == (result.value, result.stderr)
    is_kept(runtime)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no sys.monitoring")
def test_a_tool_that_monitors_meets_the_users_program_only(runtime: PythonRuntime) -> None:
    """It continues in the next cell."""
    code = (
        "import sys\nmonitoring, seen = sys.monitoring, []\ndef call(code, *_):\n    seen.append(code.co_filename)\n"
        "monitoring.use_tool_id(3, 'mine')\nmonitoring.register_callback(3, monitoring.events.PY_START, call)\n"
        "monitoring.set_events(3, monitoring.events.PY_START)\nkept = 7"
    )
    good(runtime, code)
    good(runtime, "def f(): pass\nf()")
    seen = runtime.retrieve("seen")
    assert 2 <= len(seen)
    assert [] == [each for each in seen if not each.startswith("<cell ")]


def test_a_recursion_limit_does_not_outlast_the_cell(runtime: PythonRuntime) -> None:
    """It does not prevent the kernel from reporting an error either."""
    failed = runtime.execute("import sys\ndef f(): f()\nkept = 7\nsys.setrecursionlimit(60)\nf()")
    assert failed.error is not None
    assert ", line 2, in f" in failed.error.traceback
    assert "True" == good(runtime, "sys.getrecursionlimit() >= 1000").value
    is_kept(runtime)


def test_a_watchdog_ends_with_its_cell(runtime: PythonRuntime) -> None:
    """It would end the process, and its thread prevents copies of all later states."""
    code = "import faulthandler\nfile = open('log', 'w')\nfaulthandler.dump_traceback_later(60, exit=True, file=file)"
    assert (
        "[faulthandler.dump_traceback_later ends with the cell]" in good(runtime, code + "\nkept = 7").stderr
    )
    assert "" == good(runtime, "1").unkept
    is_kept(runtime)


def test_an_exception_for_the_main_thread_reaches_no_kernel(runtime: PythonRuntime) -> None:
    """As libraries that limit time with threads raise it, when they are late."""
    raised = "PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(ValueError))"
    code = f"""
import ctypes, os, sys, threading, time
main = threading.main_thread().ident
def work():
    def waits():
        frame = sys._current_frames()[main].f_back
        return os.path.exists('go') and frame is not None and frame.f_code.co_name == '_is_asked'
    while not waits(): time.sleep(0.01)
    ctypes.pythonapi.{raised}
    open('sent', 'w').close()
thread = threading.Thread(target=work, daemon=True); thread.start()
kept = 7
"""
    good(runtime, code)
    send(runtime)
    result = good(runtime, "thread.join(); kept")
    assert "7" == result.value
    assert "Exception that reached no cell:\nValueError" in result.stderr
    is_kept(runtime)


MEAN_OF_NOTHING = "import numpy; mean = numpy.mean([])"


def test_a_cell_shows_a_warning_that_an_earlier_one_has_shown(runtime: PythonRuntime) -> None:
    first, second = (good(runtime, MEAN_OF_NOTHING).stderr for _ in range(2))
    assert "Mean of empty slice" in first
    assert first == second


def test_a_cell_shows_a_warning_of_a_loop_once(runtime: PythonRuntime) -> None:
    looped = good(runtime, f"for _ in range(9): {MEAN_OF_NOTHING}")
    assert looped.stderr.count("Mean of empty slice") == 1


@pytest.mark.parametrize(
    "how",
    [
        "warnings.simplefilter('once')",
        "warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)",
        "logging.captureWarnings(True); logging.basicConfig()",
        "sys.modules['odd'] = 5",
    ],
)
def test_that_holds_for_every_way_of_showing(runtime: PythonRuntime, how: str) -> None:
    good(runtime, f"import logging, sys, warnings; {how}")
    assert all("Mean of empty" in good(runtime, MEAN_OF_NOTHING).stderr for _ in range(2))


def test_a_warning_of_a_thread_hides_none_of_a_later_cell(runtime: PythonRuntime) -> None:
    good(
        runtime,
        "import numpy, os, threading\n"
        "def wait_and_warn():\n"
        "    while not os.path.exists('go'): pass\n"
        "    numpy.mean([]); open('sent', 'w').close()\n"
        "thread = threading.Thread(target=wait_and_warn, daemon=True); thread.start()",
    )
    send(runtime)
    assert "Mean of empty" in good(runtime, f"thread.join(); {MEAN_OF_NOTHING}").stderr
