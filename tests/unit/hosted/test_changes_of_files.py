"""Clients' changes of files, on record: which file, its content then, and what the first step begins with."""

from __future__ import annotations

import pytest
from tests.support.hosted.listening import Heard

from cenote_proto.v1 import jail_pb2
from cenote_worker.execution.trace import ABSENT, TREE, content_version, file
from cenote_worker.history.bounds import MAX_BEGUN_FILES, MAX_FILE
from cenote_worker.history.history import History
from cenote_worker.runtime.jail_requests import ClientChange, WorkdirRequest
from cenote_worker.runtime.recorder import StepRecorder
from cenote_worker.supervisor.frame_parser import DoneReply
from cenote_worker.supervisor.protocol import RequestKind
from cenote_worker.transport.content import Content


def asked(path: bytes, data: bytes | None = b"text") -> ClientChange:
    """The change of a client's request; without data: to remove the file."""
    operation = jail_pb2.FileRequest.DELETE if data is None else jail_pb2.FileRequest.WRITE
    message = jail_pb2.FileRequest(operation=operation, path=path)
    ask = WorkdirRequest(
        RequestKind.CHANGE_FILE, message, "shown", None if data is None else Content.of_bytes(data)
    )
    change = ask.change()
    ask.close()
    assert change is not None
    return change


def recorded(history: History, *changes: ClientChange) -> None:
    for change in changes:
        StepRecorder(history).change(Heard(), change).done(DoneReply())


def test_a_file_is_named_as_the_tracker_names_it() -> None:
    """And has the version of its content; folders on the way are created, or existed."""
    trace = asked("./data//ä/b.csv".encode()).trace()
    assert trace is not None
    assert {
        file("data/ä/b.csv"): content_version(b"text"),
        file("data/ä"): "folder",
        file("data"): "folder",
        TREE: "?step 0",
    } == trace.writes
    removal = asked(b"a", None)
    assert (removed := removal.trace()) is not None
    assert ("removal", {file("a"): ABSENT, TREE: "?step 0"}, {file("a")}) == (
        removal.kind,
        removed.writes,
        removed.mutated,
    )


@pytest.mark.parametrize("path", [b"a\xff", b"a\nb", b"a\xe2\x80\xae"])
def test_a_path_that_cannot_be_spoken_of(path: bytes) -> None:
    """The file is unknown: anything may have changed, and the change is not repeated."""
    change = asked(path)
    assert (("shown",), None, None) == (change.names, change.data, change.trace())


@pytest.mark.parametrize("over", [0, 1])
def test_a_large_content_is_not_read(over: int) -> None:
    """From one byte more than the limit on."""
    assert (over == 1) == (asked(b"a", bytes(MAX_FILE + over)).data is None)


@pytest.mark.parametrize("over", [0, 1])
def test_so_many_files_are_written_into_another_jail(over: int) -> None:
    """With one more, not all of them are known."""
    history = History()
    recorded(history, *(asked(f"f{number}".encode()) for number in range(MAX_BEGUN_FILES + over)))
    assert (over == 0) == all(history.begun_files.values())


def test_what_was_removed_before_the_first_step_is_not_known() -> None:
    """Neither the former file nor the other files are known."""
    history = History()
    recorded(history, asked(b"a", b"1"), asked(b"a", b"22"))
    assert {"a": content_version(b"22")} == history.begun_files
    recorded(history, asked(b"a", None))
    assert {"a": ""} == history.begun_files
