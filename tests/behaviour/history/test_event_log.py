"""A history in a file: added events are available to the next process, wherever the last one was killed."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import xxhash

from cenote_proto.v1 import history_pb2
from cenote_security.errors import HistoryTakenError, NewerHistoryError
from cenote_worker.history.event_log import DAMAGED, open_log
from cenote_worker.history.events import Event
from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runtime" / "history"


def events(history: History) -> list[Event]:
    return [history.event(position) for position in range(history.size)]


def found(path: Path) -> list[Event]:
    """The events that the next process reads."""
    with closing(open_log(path)) as history:
        return events(history)


def written(path: Path) -> tuple[str, list[Event]]:
    """A history of some events, closed: its id and its events."""
    history = open_log(path)
    history.begins_with(["raw"])
    history.ended(StepRecord(number=1, code="x = 1", author="ann", cause="call-1"))
    history.ended(StepRecord(number=2, code="x / 0", status="failed", stdout="é"))
    history.moved(1, "rollback")
    history.close()
    return history.id, events(history)


def test_the_next_process_goes_on(path: Path) -> None:
    """With the same history: a reader of a part of it can read on."""
    id, before = written(path)
    history = open_log(path)
    assert (id, before) == (history.id, events(history))
    history.ended(StepRecord(number=3, code="y = 2"))
    history.close()
    assert [*before, StepRecord(number=3, code="y = 2", parent=1)] == found(path)


def test_a_writer_may_be_killed_at_any_byte(path: Path) -> None:
    """Its incomplete entry is dropped, and everything before it remains."""
    _, whole = written(path)
    data = path.read_bytes()
    seen = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        history = open_log(path)
        assert whole[: history.size] == events(history)
        seen.add(history.size)
        history.ended(StepRecord(number=9, code="next"))
        history.close()
        assert history.size == len(found(path))
    assert {0, 1, 2, 3} == seen


def test_a_damaged_file_is_set_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """None of its content is used, the file is retained for inspection, and a new history begins."""
    id, _ = written(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    history = open_log(path, "rt_1")
    assert ["rt_1"] == [getattr(record, "runtime", "") for record in caplog.records]
    assert (0, False) == (history.size, id == history.id)
    assert data == path.with_name(path.name + DAMAGED).read_bytes()
    history.ended(StepRecord(number=1))
    history.close()
    assert 1 == len(found(path))


def test_a_file_that_grew_and_got_no_content(path: Path) -> None:
    """As after a power failure: earlier events remain."""
    _, whole = written(path)
    with path.open("ab") as file:
        file.write(bytes(100))
    assert whole == found(path)


def test_results_that_were_shed(path: Path) -> None:
    """They do not come back."""
    history = open_log(path)
    small = History(history._keep, history.id, room=10)
    for number in (1, 2):
        small.ended(StepRecord(number=number, stdout="x" * 8))
    small.close()
    assert ["", "x" * 8] == [event.stdout for event in found(path) if isinstance(event, StepRecord)]


def test_it_has_one_writer(path: Path) -> None:
    """As long as the writer lives."""
    history = open_log(path)
    with pytest.raises(HistoryTakenError):
        open_log(path)
    history.close()
    assert [] == found(path)


def test_what_a_newer_version_has_written_is_left_alone(path: Path) -> None:
    """A format or an event that this version does not know: the file is refused, and neither cut nor set aside."""
    written(path)
    known = path.read_bytes()
    unknown = history_pb2.HistoryEvent().SerializeToString() + b"\xf2\x3f\x02hi"  # field 1022
    entry = struct.pack("<QQQ", len(unknown), xxhash.xxh3_64_intdigest(unknown, 4), 4) + unknown
    for data in (known.replace(b"CENOTEH1", b"CENOTEH2"), known + entry):
        path.write_bytes(data)
        with pytest.raises(NewerHistoryError, match="use the newer version"):
            open_log(path)
        assert ([path.name], data) == ([each.name for each in path.parent.iterdir()], path.read_bytes())


FULL = """
import logging
import sys
from contextlib import suppress
from pathlib import Path

from cenote_security.errors import HistoryUnavailableError
from cenote_worker.history.event_log import open_log
from cenote_worker.history.step import StepRecord

lines = list[logging.LogRecord]()
logging.getLogger("cenote.history").addFilter(lambda record: bool(lines.append(record)))
path, ballast = Path(sys.argv[1]) / "history", Path(sys.argv[1]) / "ballast"
history = open_log(path, "rt_1")
history.ended(StepRecord(number=1))
with suppress(OSError), ballast.open("wb", buffering=0) as file:
    while True:
        file.write(bytes(4096))
refused = 0
for number in range(2, 20):
    history.ended(StepRecord(number=number, stdout="x" * 3000))
    try:
        history.flush()
    except HistoryUnavailableError as error:
        refused += 1
        assert "No space left" in str(error), error
assert refused > 10, refused
ballast.unlink()
history.ended(StepRecord(number=20))
history.flush()
history.close()
assert [("WARNING", "rt_1")] * 2 == [(line.levelname, line.runtime) for line in lines]
assert list(range(1, 21)) == [each.number for each in open_log(path).tree]
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    """A flush raises; when there is room again, all steps are stored."""
    script = f"mount -t tmpfs -o size=64k none {tmp_path} && exec {sys.executable} - {tmp_path}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], input=FULL, capture_output=True, text=True, timeout=60
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no right to mount here")
    assert 0 == done.returncode, done.stderr
