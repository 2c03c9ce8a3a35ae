"""An interrupt stops a cell at any point, and only a cell."""

import os
import signal
from concurrent.futures import Future

import pytest
from tests.waiting import until

from cenote_worker.jail.process.cell_boundary import result_of

INTERRUPT = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


def test_ends_the_cell_with_its_reason(failing, kernel):
    error = failing(f"before = 1\n{INTERRUPT}after = 1")
    assert ("interrupt", "KeyboardInterrupt") == (error.reason, error.type)
    assert "before" in kernel.namespace
    assert "after" not in kernel.namespace


def test_that_comes_late_is_not_for_the_next_cell(kernel, good):
    """One was sent for the previous cell: one received between the two may be that one."""
    os.kill(os.getpid(), signal.SIGINT)
    assert "1" == kernel.run_cell("1", 1, after_interrupt=True).value
    assert "1" == good("1").value


def test_that_comes_early_stops_its_cell(kernel, good):
    """None was sent before: it can only be meant for the cell that is about to begin, and stops that one alone."""
    os.kill(os.getpid(), signal.SIGINT)
    error = kernel.run_cell("x = 1", 1).error
    assert ("interrupt", False) == (error.reason, "x" in kernel.namespace)
    assert "1" == good("1").value


def test_can_be_caught_and_comes_again(failing, kernel):
    """Code that swallows the first interrupt is stopped by the second."""
    caught = "import os, signal\ntry: os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt: x = 1\n"
    error = failing(caught + INTERRUPT)
    assert ("interrupt", 1) == (error.reason, kernel.namespace["x"])


def test_handler_is_put_back(run):
    """A cell that ignores SIGINT does so for itself only."""
    run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert "interrupt" == run(INTERRUPT).error.reason


def test_stops_a_repr(failing):
    error = failing(
        "class Slow:\n    def __repr__(self):\n        import os, signal\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        return 'x'\nSlow()"
    )
    assert "interrupt" == error.reason


def test_stops_the_text_of_an_exception(failing):
    """The cell has failed already; without the text of its exception the error shows its type."""
    error = failing(
        "class Slow(Exception):\n    def __str__(self):\n        import os, signal\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        return 'x'\nraise Slow"
    )
    assert "interrupt" == error.reason


@pytest.mark.parametrize(
    "wait", ["asyncio.sleep(60)", "asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))"]
)
def test_cancels_an_await(failing, kernel, wait):
    """A waiting coroutine is cancelled, so that its `finally` runs."""
    code = (
        "import asyncio, os, signal\nclean = False\n"
        "asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)\n"
        f"try:\n    await {wait}\nfinally:\n    clean = True"
    )
    assert "interrupt" == failing(code).reason
    assert kernel.namespace["clean"] is True


def test_stops_busy_code_of_a_coroutine(failing):
    error = failing(f"import asyncio\nawait asyncio.sleep(0)\n{INTERRUPT}while True: pass")
    assert "interrupt" == error.reason


def test_stops_a_coroutine_that_will_not_be_cancelled(failing, good):
    """The second interrupt is raised at once; the loop can still be used afterwards."""
    code = (
        "import asyncio, os, signal\nloop = asyncio.get_running_loop()\n"
        "def interrupt(): loop.call_later(0.01, os.kill, os.getpid(), signal.SIGINT)\n"
        "interrupt()\n"
        "while True:\n    try:\n        await asyncio.sleep(0.2)\n"
        "    except asyncio.CancelledError:\n        tries = 1\n        interrupt()\n"
        "    if 'stop' in globals(): break"
    )
    assert "interrupt" == failing(code).reason
    assert "1" == good("stop = True\nawait asyncio.sleep(0)\ntries").value


def test_the_loop_works_after_an_interrupt(run, good):
    run(f"import asyncio\nawait asyncio.sleep(0)\n{INTERRUPT}")
    assert "5" == good("await asyncio.sleep(0, 5)").value


def test_stops_a_run_in_a_cell_without_await(failing, kernel):
    """`asyncio.run` cancels its coroutine on the way out."""
    code = (
        "import asyncio, os, signal\nclean = False\n"
        "async def wait():\n    global clean\n"
        "    asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)\n"
        "    try: await asyncio.sleep(60)\n    finally: clean = True\n"
        "asyncio.run(wait())"
    )
    assert "interrupt" == failing(code).reason
    assert kernel.namespace["clean"] is True


def test_stops_a_nested_run(failing):
    """`asyncio.run` in a cell that awaits waits for its own thread."""
    code = (
        "import asyncio, os, signal, threading\nawait asyncio.sleep(0)\n"
        "async def wait():\n"
        "    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(wait())"
    )
    assert "interrupt" == failing(code).reason


def test_stops_a_nested_run_that_has_just_begun(failing, kernel):
    """Its thread has started, and the cell does not wait for it yet."""
    code = (
        "import asyncio, os, signal, threading\nawait asyncio.sleep(0)\n"
        "clean, begun, plain = False, threading.Event(), threading.Thread.start\n"
        "async def wait():\n    global clean\n    begun.set()\n"
        "    try: await asyncio.sleep(600)\n    finally: clean = True\n"
        "def start(thread):\n    plain(thread)\n    begun.wait()\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread.start = start\n"
        "try: asyncio.run(wait())\nfinally: threading.Thread.start = plain"
    )
    assert "interrupt" == failing(code).reason
    until(lambda: kernel.namespace["clean"])


def test_stops_a_cell_whose_nested_run_has_just_ended(failing, monkeypatch):
    """There is nothing left to cancel, which is not an error of the cell's."""
    monkeypatch.setattr("cenote_worker.jail.cells.event_loop._PATIENCE", 0.01)
    code = (
        "import asyncio, os, signal, threading\nawait asyncio.sleep(0)\n"
        "over = threading.Event()\n"
        "async def work():\n    loop = asyncio.get_running_loop()\n    plain = loop.close\n"
        "    def close():\n        plain()\n        os.kill(os.getpid(), signal.SIGINT)\n        over.wait()\n"
        "    loop.close = close\n"
        "try: asyncio.run(work())\nfinally: over.set()"
    )
    error = failing(code)
    assert ("interrupt", "KeyboardInterrupt") == (error.reason, error.type)


def test_as_a_wait_begins(monkeypatch):
    """It is raised unchanged, and not as an error of the wait's own condition."""
    answer = Future()
    release = answer._condition._release_save

    def interrupted():
        saved = release()
        assert saved
        raise KeyboardInterrupt

    monkeypatch.setattr(answer._condition, "_release_save", interrupted)
    with pytest.raises(RuntimeError, match="un-acquired lock"):
        answer.result()
    former = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            result_of(answer)
    finally:
        signal.signal(signal.SIGALRM, former)
    answer.set_result(1)
    assert 1 == result_of(answer)
