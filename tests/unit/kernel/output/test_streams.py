"""`sys.stdout` behaves as the text stream that libraries expect."""

import io

import pytest

from cenote_worker.jail.output.streams import CellStream, OutputBuffer


@pytest.fixture
def stdout(sink):
    return CellStream(OutputBuffer(sink), "stdout")


def test_is_a_text_stream_but_no_terminal(stdout, sink):
    assert isinstance(stdout, io.TextIOBase)
    assert ("utf-8", "<stdout>", 1) == (stdout.encoding, stdout.name, stdout.fileno())
    assert stdout.writable()
    assert not stdout.readable()
    assert not stdout.isatty()
    assert 2 == CellStream(OutputBuffer(sink), "stderr").fileno()


def test_write_counts_characters(stdout):
    assert 2 == stdout.write("é\n")
    assert 0 == stdout.write("")


def test_write_takes_text_only(stdout):
    with pytest.raises(TypeError, match="must be str, not bytes"):
        stdout.write(b"x")


def test_buffer_takes_bytes(stdout, sink):
    """Two writes may split a character; bytes that are not UTF-8 are shown escaped."""
    assert 2 == stdout.buffer.write("é".encode())
    stdout.buffer.write(b"\xc3")
    stdout.buffer.write(b"\xa9\xff\n")
    stdout.buffer.flush()
    assert "éé\\xff\n" == sink.out


def test_habits_of_libraries(stdout, sink):
    stdout.reconfigure(encoding="ascii", line_buffering=False)
    stdout.writelines(["a\n", "b\n"])
    io.TextIOWrapper(stdout.buffer, encoding="utf-8", write_through=True).write("c\n")
    assert "a\nb\nc\n" == sink.out


def test_closing_only_flushes(stdout, sink):
    stdout.write("a")
    stdout.close()
    stdout.write("b\n")
    assert "ab\n" == sink.out
    assert not stdout.closed


def test_lone_surrogates_are_written_out(stdout, sink):
    stdout.write("\ud800\n")
    assert "\\ud800\n" == sink.out


def test_a_subclass_of_str_cannot_lie(stdout, sink):
    class Liar(str):
        def __len__(self):
            return -5

    assert 2 == stdout.write(Liar("a\n"))
    assert "a\n" == sink.out
