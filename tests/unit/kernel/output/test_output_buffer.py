"""Output goes to the sink in whole lines, in the order in which it was written."""

import gc
import threading
import weakref

from cenote_worker.jail.output.streams import BUFFERED_CHARS, OutputBuffer


def test_a_print_is_one_write(good, sink):
    good("print('a', 'b')\nprint('two\\nlines')")
    assert [("stdout", "a b\n"), ("stdout", "two\nlines\n")] == sink.writes


def test_unfinished_lines_come_with_the_end_of_the_cell(good, sink):
    good("print('a', end='')")
    assert [("stdout", "a")] == sink.writes


def test_flush_passes_on_what_is_there(good, sink):
    good("print('a', end='', flush=True)\nprint('b')")
    assert [("stdout", "a"), ("stdout", "b\n")] == sink.writes


def test_streams_keep_their_order(good, sink):
    """One stream's buffer is written before the other's output."""
    good("import sys\nprint('a', end='')\nprint('b', end='', file=sys.stderr)\nprint('c')")
    assert [("stdout", "a"), ("stderr", "b"), ("stdout", "c\n")] == sink.writes


def test_displays_keep_their_order(good, sink):
    order: list[str] = []
    sink.write = lambda stream, text: order.append(text)
    sink.display = lambda bundle: order.append("display")
    good("print('a', end='')\ndisplay(1)\nprint('b')")
    assert ["a", "display", "b\n"] == order


def test_long_unfinished_lines_are_passed_on(sink):
    output = OutputBuffer(sink)
    output.write("stdout", "a" * (BUFFERED_CHARS - 1))
    assert [] == sink.writes
    output.write("stdout", "b")
    assert BUFFERED_CHARS == len(sink.out)


def test_threads_lose_nothing(good, sink):
    good(
        "import sys, threading\n"
        "def work(n):\n    for i in range(200): sys.stdout.write(f'{n}:{i}\\n')\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()"
    )
    lines = sink.out.replace("\n", " ").split()
    assert 800 == len(lines) == len(set(lines))


def test_a_thread_goes_on_after_its_cell(good, sink):
    good(
        "import threading\ngo, done = threading.Event(), threading.Event()\n"
        "def later():\n    go.wait(60); print('later'); done.set()\nthreading.Thread(target=later).start()"
    )
    assert "" == sink.out
    good("go.set()\ndone.wait(60)")
    assert "later\n" == sink.out


def test_printing_from_inside_the_sink_does_not_lock(sink):
    """The collector may run a `__del__` that prints while the sink holds a lock."""
    output = OutputBuffer(sink)
    plain, lock = sink.write, threading.Lock()

    def write(stream, text):
        assert lock.acquire(blocking=False)
        if text == "first\n":
            output.write("stdout", "second\n")
        plain(stream, text)
        lock.release()

    sink.write = write
    output.write("stdout", "first\n")
    output.flush()
    assert "first\nsecond\n" == sink.out


def test_a_failing_sink_does_not_silence_later_output(sink):
    output = OutputBuffer(sink)
    plain = sink.write

    def fail(stream, text):
        sink.write = plain
        raise BrokenPipeError

    sink.write = fail
    try:
        output.write("stdout", "lost\n")
    except BrokenPipeError:
        output.write("stdout", "kept\n")
    assert "kept\n" == sink.out


def test_fork_hooks_keep_no_buffer_alive(sink):
    output = OutputBuffer(sink)
    alive = weakref.ref(output)
    del output
    gc.collect()
    assert alive() is None
