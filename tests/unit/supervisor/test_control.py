"""The line to the warden: every message on it is checked."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest

from cenote_security.errors import ProtocolViolation
from cenote_worker.execution.results import SnapshotInfo
from cenote_worker.supervisor.channels.warden import MAX_MESSAGE, MESSAGES_PER_TURN, WardenChannel
from cenote_worker.supervisor.exit_reason import JailExit


class Line:
    """A control line whose warden end the test controls, and the events observed on it."""

    def __init__(self) -> None:
        ours, self.warden = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.deaths: list[JailExit] = []
        self.revivals: list[tuple[str, int, int]] = []
        self.rollbacks: list[int | None] = []
        self.parkings: list[bool | int] = []
        self.numbers: list[int] = []
        self.line = WardenChannel(ours, self)

    def asked(self, number: int) -> None:
        self.numbers.append(number)

    def ended(self, death: JailExit) -> None:
        self.deaths.append(death)

    def revived(self, death: JailExit, step: int, pid: int) -> None:
        self.revivals.append((death.reason, step, pid))

    def rolled_back(self, step: int | None, pid: int) -> None:
        self.rollbacks.append(step)

    def parked(self, *, is_parked: bool) -> None:
        self.parkings.append(is_parked)

    def unparked(self, pid: int) -> None:
        self.parkings.append(pid)

    def dropped(self) -> None: ...

    def says(self, data: object) -> None:
        self.warden.send(data if isinstance(data, bytes) else json.dumps(data).encode())
        self.line.read()

    def heard(self) -> dict[str, object]:
        return json.loads(self.warden.recv(4096))


def test_an_interrupt_is_pending_until_it_is_acknowledged() -> None:
    """While an interrupt is pending no cell may be sent: the interrupt could hit it."""
    line = Line()
    line.line.interrupt()
    assert line.line.interrupting
    line.says({"op": "interrupted", "id": line.heard()["id"]})
    assert not line.line.interrupting


def test_a_flood_is_read_in_turns() -> None:
    """All jails of a process are read by one thread."""
    line, count = Line(), 2 * MESSAGES_PER_TURN
    for number in range(count):
        line.warden.send(json.dumps({"op": "revived", "status": 0, "step": number, "pid": 5}).encode())
    line.line.read()
    assert MESSAGES_PER_TURN == len(line.revivals)
    line.line.read()
    assert count == len(line.revivals)


def test_status() -> None:
    """The answer reaches the caller."""
    line, answers = Line(), []
    line.line.status(
        lambda memory, processes: answers.append((memory, processes)), lambda: answers.append(None)
    )
    line.says({"op": "status", "id": line.heard()["id"], "memory": 4096, "processes": 2})
    assert [(4096, 2)] == answers


def test_an_empty_message_is_no_end() -> None:
    """`recv` returns the same for both. The jail lives, and must not be treated as dead."""
    line = Line()
    with pytest.raises(ProtocolViolation, match="empty"):
        line.says(b"")
    assert [] == line.deaths


@pytest.mark.parametrize("how", [socket.socket.close, lambda warden: warden.shutdown(socket.SHUT_WR)])
def test_a_line_at_its_end(how: Callable[[socket.socket], None]) -> None:
    """The other end was closed, or shut down."""
    line = Line()
    how(line.warden)
    line.line.read()
    assert ["killed"] == [death.reason for death in line.deaths]


def test_a_question_is_awaited_until_its_answer() -> None:
    """The observer, which has a clock, is notified of each kind of question."""
    line = Line()
    questions: list[Callable[[], None]] = [
        line.line.interrupt,
        lambda: line.line.status(lambda memory, processes: None, lambda: None),
        lambda: line.line.snapshots(lambda kept: None, lambda: None),
        lambda: line.line.rollback(1, ""),
        lambda: line.line.park(1),
        line.line.unpark,
    ]
    for number, ask in enumerate(questions):
        ask()
        assert number + 1 == len(line.numbers)
        assert line.line.awaits(line.numbers[-1])
    for word in ("relieve", "thin", "kill_worker"):
        getattr(line.line, word)()
    assert len(questions) == len(line.numbers)
    line.says({"op": "interrupted", "id": line.numbers[0]})
    assert not line.line.awaits(line.numbers[0])


def test_questions_fail_when_the_line_closes() -> None:
    """Their callers are answered, and do not wait for ever."""
    line, answers = Line(), []
    line.line.status(lambda memory, processes: answers.append(1), lambda: answers.append(None))
    line.line.close()
    assert [None] == answers


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"op": "exited", "signal": 11}, "signal 11"),
        ({"op": "exited", "signal": 9}, "killed"),
        ({"op": "exited", "signal": 9, "oom": True}, "memory"),
        ({"op": "exited", "status": 3}, "exit"),
    ],
)
def test_the_end(message: dict[str, object], reason: str) -> None:
    """The warden's last message becomes a reason."""
    line = Line()
    line.says(message)
    assert [reason] == [death.reason for death in line.deaths]


def test_a_worker_that_a_copy_follows() -> None:
    """The jail continues: the message says why the worker died, and the step of its successor."""
    line = Line()
    line.says({"op": "revived", "signal": 11, "step": 4, "pid": 7})
    assert ([("signal 11", 4, 7)], []) == (line.revivals, line.deaths)


def test_a_rollback_is_answered_once() -> None:
    """With the present step of the jail, or None if the requested state is not stored."""
    line = Line()
    line.line.rollback(3, "")
    asked = line.heard()
    assert (3, True) == (asked["step"], line.line.busy)
    line.says({"op": "rolled_back", "id": asked["id"], "step": 3, "pid": 7})
    line.line.rollback(9, "")
    line.says({"op": "not_kept", "id": line.heard()["id"]})
    assert ([3, None], False) == (line.rollbacks, line.line.busy)
    with pytest.raises(ProtocolViolation):
        line.says({"op": "rolled_back", "id": asked["id"], "step": 3, "pid": 7})


def test_a_worker_that_ends_and_comes_again() -> None:
    """Each question is answered once. The line does not count as busy: a successor would ask again."""
    line = Line()
    line.line.park(3)
    asked = line.heard()
    assert (3, False) == (asked["step"], line.line.busy)
    line.says({"op": "parked", "id": asked["id"], "is_parked": True})
    line.line.unpark()
    line.says({"op": "unparked", "id": line.heard()["id"], "pid": 7})
    assert [True, 7] == line.parkings
    with pytest.raises(ProtocolViolation):
        line.says({"op": "parked", "id": asked["id"], "is_parked": True})


def test_what_a_former_process_asked_is_over() -> None:
    line = Line()
    line.line.take_up()
    line.says({"op": "parked", "id": 1, "is_parked": True})
    line.says({"op": "unparked", "id": 2, "pid": 7})
    assert [] == line.parkings


def test_snapshots_are_listed() -> None:
    """A jail chooses its labels: they are displayed harmlessly."""
    line, told = Line(), []
    line.line.snapshots(told.append, lambda: told.append(None))
    kept = [{"step": 0, "label": "", "memory": 1}, {"step": 2, "label": "a\x1b", "memory": 2}]
    line.says({"op": "snapshots", "id": line.heard()["id"], "kept": kept})
    assert [(SnapshotInfo(step=0, memory=1), SnapshotInfo(step=2, label="a\\x1b", memory=2))] == told


def test_silence_is_an_end_too() -> None:
    """A warden that ended without a message was killed."""
    line = Line()
    line.warden.close()
    line.line.read()
    assert ["killed"] == [death.reason for death in line.deaths]


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b"[1]",
        b'{"op": "status", "id": 99, "memory": 1, "processes": 1}',
        b'{"op": "status", "id": "1"}',
        b'{"op": "status", "id": -1}',
        b'{"op": "dance"}',
        b"{}",
        b'{"op": "revived", "step": -1}',
        b'{"op": "rolled_back", "id": 1, "step": 1, "pid": 1}',
        b'{"op": "snapshots", "id": 1, "kept": []}',
        b'{"op": "parked", "id": 1, "is_parked": true}',
        b'{"op": "unparked", "id": 1, "pid": 1}',
        b'{"op": "unparked", "pid": 1}',
        b"[" * 4000,
        b"x" * (MAX_MESSAGE + 1),
    ],
)
def test_nonsense(data: bytes) -> None:
    """Anything else ends the jail."""
    with pytest.raises(ProtocolViolation):
        Line().says(data)


def test_a_successor_holds_nothing() -> None:
    """A caller of the dead process needed those states: they may be thinned out again."""
    line = Line()
    line.line.holds.add([3, "here"])
    assert {3, "here"} == set(line.heard()["targets"])
    line.line.take_up()
    assert ("hold", []) == ((said := line.heard())["op"], said["targets"])
