"""The line to a jail's warden: interrupts, status questions, and the news of the end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

from cenote_security.errors import ProtocolViolation
from cenote_worker.supervisor.autopsy import Death, from_warden

MAX_MESSAGE = 4096
"""Bytes. The longest honest message has about a hundred."""

MAX_PENDING = 1_000
"""Questions that may wait for an answer; a jail that answers none is not asked for ever."""

Answered = Callable[[int, int], None]


class ControlLine:
    """Speaks JSON with the warden. The warden is inside the jail: its every word is checked.

    on_end: called once, with what is known about the end of the jail.
    """

    def __init__(self, sock: socket.socket, on_end: Callable[[Death], None]) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._on_end = on_end
        self._number = 0
        self._before = 0
        self._interrupts: set[int] = set()
        self._questions: dict[int, tuple[Answered, Callable[[], None]]] = {}

    def take_up(self) -> None:
        """Goes on behind another process, whose questions may still be answered and interrupts be on their way.

        The warden answers in order, so they are over when a question of this process is answered.
        """
        self._number = self._before = time.monotonic_ns()  # greater than any number of any process before
        number = self._send("status")
        if number is not None:
            self._interrupts.add(number)
            over = self._interrupts.discard
            self._questions[number] = (lambda _memory, _processes: over(number), _nobody_waits)

    @property
    def interrupting(self) -> bool:
        """An interrupt is on its way: a cell sent now could be hit by it."""
        return bool(self._interrupts)

    @property
    def busy(self) -> bool:
        """Something was asked that is not answered yet."""
        return bool(self._interrupts or self._questions)

    def interrupt(self) -> None:
        number = self._send("interrupt")
        if number is not None:
            self._interrupts.add(number)

    def status(self, answered: Answered, failed: Callable[[], None]) -> None:
        """answered(memory in bytes, number of processes), or failed() when the jail ends first."""
        number = self._send("status") if len(self._questions) < MAX_PENDING else None
        if number is None:
            failed()
        else:
            self._questions[number] = (answered, failed)

    def read(self) -> None:
        """Takes what the warden said. Raises ProtocolViolation for what it may not say."""
        while True:
            try:
                data = self._sock.recv(MAX_MESSAGE + 1)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._on_end(Death(reason="killed"))
                return
            if self._hear(_parse(data)):
                return

    def close(self) -> None:
        questions, self._questions = self._questions, {}
        self._interrupts.clear()
        for _, failed in questions.values():
            failed()

    def _send(self, operation: str) -> int | None:
        self._number += 1
        try:
            self._sock.send(json.dumps({"op": operation, "id": self._number}).encode(), socket.MSG_NOSIGNAL)
        except OSError:  # gone, or so far behind that it will be killed by the clock
            return None
        return self._number

    def _hear(self, message: dict[str, object]) -> bool:
        """True when it was the last message."""
        number = _integer(message, "id")
        match message.get("op"):
            case "interrupted":
                self._interrupts.discard(number or 0)
            case "status":
                self._answer(number, _integer(message, "memory"), _integer(message, "processes"))
            case "exited":
                signal_number, status = _integer(message, "signal"), _integer(message, "status")
                self._on_end(from_warden(signal_number, status, message.get("oom") is True))
                return True
            case _:
                raise ProtocolViolation("the warden said something unknown")
        return False

    def _answer(self, number: int | None, memory: int | None, processes: int | None) -> None:
        if number is not None and 0 < number <= self._before:
            return
        waiting = self._questions.pop(number, None) if number is not None else None
        if waiting is None or memory is None or processes is None:
            raise ProtocolViolation("a status that nobody asked for")
        waiting[0](memory, processes)


def _nobody_waits() -> None:
    pass


def _parse(data: bytes) -> dict[str, object]:
    if len(data) > MAX_MESSAGE:
        raise ProtocolViolation("a control message is too long")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolViolation("a control message is not JSON") from None
    if not isinstance(message, dict):
        raise ProtocolViolation("a control message is not an object")
    return message


def _integer(message: dict[str, object], key: str) -> int | None:
    value = message.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ProtocolViolation(f"a control message with a strange {key}")
    return value
