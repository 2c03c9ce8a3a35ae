"""Many short lines go to the sink together, and none waits for long."""

import threading
from pathlib import Path

import pytest
from tests.waiting import PATIENCE

from cenote_worker.jail.output import streams
from cenote_worker.jail.output.streams import BUFFERED_CHARS, BURST, OutputBuffer, Pacer


def test_a_burst_of_lines_is_passed_on_together(good, sink):
    good("for i in range(20_000): print(i)")
    assert "".join(f"{i}\n" for i in range(20_000)) == sink.out
    assert 2_000 > len(sink.writes)


@pytest.mark.parametrize(("lines", "paced"), [(BURST - 1, False), (BURST, True)])
def test_begins_with_a_burst(sink, lines, paced):
    """A cell that prints little has each line passed on at once, without a thread."""
    before = set(threading.enumerate())

    def own() -> bool:
        return any(thread.name == "output" for thread in {*threading.enumerate()} - before)

    output = OutputBuffer(sink)
    for _ in range(lines):
        output.write("stdout", "x\n")
    assert lines == len(sink.writes)
    assert paced == own()
    output.drain()
    assert not own()


def test_the_last_line_before_a_silence_is_passed_on(sink):
    arrived = threading.Event()
    output = OutputBuffer(sink)
    for _ in range(BURST):
        output.write("stdout", "x\n")
    plain = sink.write

    def write(stream, text):
        plain(stream, text)
        arrived.set()

    sink.write = write
    output.write("stdout", "last\n")
    assert arrived.wait(PATIENCE)
    assert sink.out.endswith("last\n")
    output.drain()


def test_the_next_cell_begins_anew(good, sink):
    good("for i in range(1000): print(i)")
    sink.writes.clear()
    good("print(1)\nprint(2)\nimport threading")
    assert [("stdout", "1\n"), ("stdout", "2\n")] == sink.writes
    assert "False" == good("any(t.name == 'output' for t in threading.enumerate())").value


def test_a_fork_finds_no_thread(apart):
    """Python warns of forks in threaded processes, and the child would wait for a thread that it lacks."""
    code = (
        "import os\nfor i in range(1000): print(i)\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n"
        "else:\n    for i in range(1000): print('c')"
    )
    cell, after = (done := apart(code, "5")).cells
    assert ("5", "") == (after["value"], cell["stderr"])
    assert 1_000 * "c\n" == done.stdout


def test_a_stopped_pacer_leaves_no_thread_of_the_kernel_s():
    """Joining waits for Python's part of a thread; while the kernel still has it, a fork warns."""
    for _ in range(300):
        pacer = Pacer(lambda: None)
        assert pacer.start()
        assert pacer._thread is not None
        task = Path(f"/proc/self/task/{pacer._thread.native_id}")
        pacer.stop()
        assert not task.exists()


def test_a_thread_that_waits_for_a_processor_is_waited_for(monkeypatch):
    """As on a busy machine, where each check is slow as well."""
    looks = iter([True] * 20)
    monkeypatch.setattr(streams, "_exists", lambda _path: next(looks, False))
    monkeypatch.setattr(streams, "_sleep", lambda _seconds: threading.Event().wait(0.01))
    streams._await_end(1)
    assert next(looks, None) is None


def test_a_stop_between_two_looks_is_not_lost():
    """It comes after the thread has seen that it must continue, and before it waits for the next wake-up."""

    class StoppedWhenCleared(threading.Event):
        def clear(self):
            pacer._stopped.set()
            self.set()
            super().clear()

    pacer = Pacer(lambda: None)
    pacer._nudged = StoppedWhenCleared()
    assert pacer.start()
    pacer.nudge()
    pacer._thread.join(PATIENCE)
    assert not pacer._thread.is_alive()


def test_a_sink_that_fails_ends_the_thread_only(sink):
    before = set(threading.enumerate())
    output = OutputBuffer(sink)
    for _ in range(BURST):
        output.write("stdout", "x\n")

    plain = sink.write

    def fail(stream, text):
        raise BrokenPipeError

    sink.write = fail
    output.write("stdout", "lost\n")
    with pytest.raises(BrokenPipeError):
        output.write("stdout", "x" * BUFFERED_CHARS)
    sink.write = plain
    output.drain()
    assert all(thread.name != "output" for thread in {*threading.enumerate()} - before)
