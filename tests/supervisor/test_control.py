"""The line to the warden: every word of it is checked."""

from __future__ import annotations

import json
import socket

import pytest

from cenote_security.errors import ProtocolViolation
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.control import MAX_MESSAGE, ControlLine


class Line:
    """A control line with the warden's end in the test's hand."""

    def __init__(self) -> None:
        ours, self.warden = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.deaths: list[Death] = []
        self.line = ControlLine(ours, self.deaths.append)

    def says(self, data: object) -> None:
        self.warden.send(data if isinstance(data, bytes) else json.dumps(data).encode())
        self.line.read()

    def heard(self) -> dict[str, object]:
        return json.loads(self.warden.recv(4096))


def test_an_interrupt_is_pending_until_it_is_acknowledged() -> None:
    """While an interrupt is on its way no cell may be sent: it could be hit."""
    line = Line()
    line.line.interrupt()
    assert line.line.interrupting
    line.says({"op": "interrupted", "id": line.heard()["id"]})
    assert not line.line.interrupting


def test_status() -> None:
    """The answer reaches the one who asked."""
    line, answers = Line(), []
    line.line.status(
        lambda memory, processes: answers.append((memory, processes)), lambda: answers.append(None)
    )
    line.says({"op": "status", "id": line.heard()["id"], "memory": 4096, "processes": 2})
    assert [(4096, 2)] == answers


def test_questions_fail_when_the_line_closes() -> None:
    """Nobody waits for ever."""
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
    """The warden's last words become a reason."""
    line = Line()
    line.says(message)
    assert [reason] == [death.reason for death in line.deaths]


def test_silence_is_an_end_too() -> None:
    """A warden that is gone without a word was killed."""
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
        b"[" * 4000,
        b"x" * (MAX_MESSAGE + 1),
    ],
)
def test_nonsense(data: bytes) -> None:
    """Anything else ends the jail."""
    with pytest.raises(ProtocolViolation):
        Line().says(data)
