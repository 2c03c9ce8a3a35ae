"""The control channel to a jail's warden: interrupts, status requests, snapshots, and reports of a worker's end.

Snapshots that are needed until some work is done are pinned: the warden does not drop them meanwhile. The warden
runs inside the jail, so each of its messages is checked.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from cenote_security.errors import ProtocolViolation
from cenote_security.printable import printable
from cenote_worker.execution.results import SnapshotInfo
from cenote_worker.supervisor.exit_reason import JailExit, from_warden
from cenote_worker.transport.packets import has_ended, send_packet

SnapshotTarget = int | str
"""The number of a step, or a label."""


class SnapshotPins:
    """Snapshots that several callers need at once. hold: sends all to the warden, replacing what was sent before."""

    def __init__(self, hold: Callable[[frozenset[SnapshotTarget]], None]) -> None:
        self._hold = hold
        self._needed: dict[object, frozenset[SnapshotTarget]] = {}

    def add(self, targets: Iterable[SnapshotTarget]) -> object:
        """Pins the snapshots until the returned holder is passed to `let_go`."""
        holder = object()
        self._needed[holder] = frozenset(targets)
        self._say()
        return holder

    def let_go(self, holder: object) -> None:
        """Calling it twice has no further effect."""
        if self._needed.pop(holder, None) is not None:
            self._say()

    def _say(self) -> None:
        self._hold(frozenset[SnapshotTarget]().union(*self._needed.values()))


MAX_MESSAGE = 131_072
"""Bytes. The longest valid message is a list of some labelled snapshots."""

MESSAGES_PER_TURN = 64
"""A compromised warden, possible in gVisor, that floods its channel gets no more before others have a turn."""

MAX_PENDING = 1_000
"""Requests that may wait for an answer; a jail that answers none gets no more."""

MAX_SNAPSHOTS = 128
"""In a list, in which a state is once for each of its labels."""
MAX_LABEL = 100

StatusCallback = Callable[[int, int], None]
SnapshotsCallback = Callable[[tuple[SnapshotInfo, ...]], None]


class WardenObserver(Protocol):
    """Is called for what happens to the jail's worker."""

    def asked(self, number: int) -> None:
        """A request was sent to the warden. See `WardenChannel.awaits`."""

    def ended(self, death: JailExit) -> None:
        """The jail has ended: what is known of it. The last call."""

    def revived(self, death: JailExit, step: int, pid: int) -> None:
        """The worker has died; a copy continues in its place, at the end of `step`. pid: as the jail sees it."""

    def dropped(self) -> None:
        """The running cell had to pay too much for its snapshots, and all of them were dropped."""

    def rolled_back(self, step: int | None, pid: int) -> None:
        """A copy has taken the worker's place as requested; None when there is no such copy, and nothing was done."""

    def parked(self, *, is_parked: bool) -> None:
        """The worker has ended as requested; or has not, since it could not be restored in full later."""

    def unparked(self, pid: int) -> None:
        """A worker runs, as requested; 0 if none could be made."""

    def not_begun(self, number: int, code: int) -> None:
        """No attendant could be forked for the program of this number. code: an errno."""

    def unattended(self, number: int, cause: str) -> None:
        """The attendant of a program was killed, and so was the program. cause: `worker`, `rollback` or empty."""


class WardenChannel:
    """Exchanges JSON messages with the warden. The warden is inside the jail: each of its messages is checked.

    observer: called while messages are read.
    """

    def __init__(self, sock: socket.socket, observer: WardenObserver) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._observer = observer
        self._number = 0
        self._before = 0
        self._interrupts: set[int] = set()
        self._questions: dict[int, tuple[StatusCallback, Callable[[], None]]] = {}
        self._listings: dict[int, tuple[SnapshotsCallback, Callable[[], None]]] = {}
        self._rollback = 0
        self._parking = 0
        self.holds = SnapshotPins(self._hold)

    def take_up(self) -> None:
        """Continues after another process, whose requests may still be answered and interrupts be on their way.

        The warden answers in order, so they are over when a request of this process is answered.
        """
        self._number = self._before = time.monotonic_ns()  # greater than any number of any process before
        self._hold(frozenset())  # all pins belonged to callers of that process
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
        """A request is not answered yet, and a successor would not get the answer either."""
        return bool(self._interrupts or self._questions or self._listings or self._rollback)

    def awaits(self, number: int) -> bool:
        """Whether the warden was sent this request and has not answered it yet."""
        single = (self._rollback, self._parking)
        return number in single or any(
            number in asked for asked in (self._interrupts, self._questions, self._listings)
        )

    def interrupt(self) -> None:
        number = self._ask("interrupt")
        if number is not None:
            self._interrupts.add(number)

    def status(self, answered: StatusCallback, failed: Callable[[], None]) -> None:
        """answered(memory in bytes, number of processes), or failed() when the jail ends first."""
        number = self._ask("status") if len(self._questions) < MAX_PENDING else None
        if number is None:
            failed()
        else:
            self._questions[number] = (answered, failed)

    def snapshots(self, told: SnapshotsCallback, failed: Callable[[], None]) -> None:
        """told(the snapshots), or failed() when the jail ends first."""
        number = self._ask("snapshots") if len(self._listings) < MAX_PENDING else None
        if number is None:
            failed()
        else:
            self._listings[number] = (told, failed)

    def rollback(self, step: int, label: str) -> None:
        """Replaces the worker, which must be idle, by a copy. See `WardenObserver.rolled_back`. label: or empty."""
        self._rollback = self._ask("rollback", step=step, label=label) or 0

    def relieve(self) -> None:
        """Gives up all snapshots but the newest: memory is short."""
        self._send("relieve")

    def thin(self) -> None:
        """Gives up the snapshots that no client requested, except the newest: memory may become short."""
        self._send("thin")

    def kill_worker(self) -> None:
        self._send("kill_worker")

    def park(self, step: int) -> None:
        """Ends the worker, which must be idle, if it can be restored as it is. See `WardenObserver.parked`.

        step: the one whose end it is at.
        """
        self._parking = self._ask("park", step=step) or 0

    def unpark(self) -> None:
        """Starts a worker again. See `WardenObserver.unparked`."""
        self._parking = self._ask("unpark") or 0

    def begin_program(self, descriptors: Sequence[int]) -> int | None:
        """Has a program started beside the worker. Returns its number; None where the warden cannot be reached."""
        return self._send("begin", descriptors)

    def end_program(self, program: int) -> None:
        """Has the program's attendant killed, and then all processes left without an attendant."""
        self._send("end_program", program=program)

    def read(self) -> None:
        """Reads some of the warden's messages. Raises ProtocolViolation for an invalid one."""
        for _ in range(MESSAGES_PER_TURN):
            try:
                data = self._sock.recv(MAX_MESSAGE + 1)
            except BlockingIOError:
                return
            except OSError:
                data = None
            if not data:
                if data is not None and not has_ended(self._sock):
                    raise ProtocolViolation("an empty control message")
                # Isolation keeps code in the jail away from its warden; levels without it are for trusted code.
                self._observer.ended(JailExit(reason="killed", outside=True))
                return
            if self._hear(_parse(data)):
                return

    def close(self) -> None:
        questions, self._questions = self._questions, {}
        self._interrupts.clear()
        listings, self._listings = self._listings, {}
        for _, failed in (*questions.values(), *listings.values()):
            failed()

    def _hold(self, targets: frozenset[SnapshotTarget]) -> None:
        self._send("hold", targets=[*targets])

    def _ask(self, operation: str, **facts: int | str) -> int | None:
        """Sends a request that is answered."""
        number = self._send(operation, (), **facts)
        if number is not None:
            self._observer.asked(number)
        return number

    def _send(
        self, operation: str, descriptors: Sequence[int] = (), **facts: int | str | list[SnapshotTarget]
    ) -> int | None:
        self._number += 1
        message = json.dumps({"op": operation, "id": self._number, **facts}).encode()
        try:
            send_packet(self._sock, message, [*descriptors])
        except OSError:  # gone, or so far behind that the time limit will kill it
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
            case "snapshots":
                self._list(number, message.get("kept"))
            case "parked":
                if self._is_of_parking(number):
                    self._observer.parked(is_parked=message.get("is_parked") is True)
            case "unparked":
                if self._is_of_parking(number):
                    self._observer.unparked(_pid(message))
            case "revived":
                self._observer.revived(_death(message), _integer(message, "step") or 0, _pid(message))
            case "dropped":
                self._observer.dropped()
            case "rolled_back":
                self._rolled_back(number, _integer(message, "step") or 0, _pid(message))
            case "not_kept":
                self._rolled_back(number, None, 0)
            case "not_begun":
                self._observer.not_begun(number or 0, _integer(message, "code") or 0)
            case "unattended":
                self._observer.unattended(number or 0, str(message.get("cause"))[:MAX_LABEL])
            case "exited":
                self._observer.ended(_death(message))
                return True
            case _:
                raise ProtocolViolation("the warden said something unknown")
        return False

    def _answer(self, number: int | None, memory: int | None, processes: int | None) -> None:
        if number is not None and 0 < number <= self._before:
            return
        waiting = self._questions.pop(number, None) if number is not None else None
        if waiting is None or memory is None or processes is None:
            raise ProtocolViolation("a status without a request")
        waiting[0](memory, processes)

    def _list(self, number: int | None, kept: object) -> None:
        if number is not None and 0 < number <= self._before:
            return
        waiting = self._listings.pop(number, None) if number is not None else None
        if waiting is None:
            raise ProtocolViolation("a list of snapshots without a request")
        waiting[0](_snapshots(kept))

    def _rolled_back(self, number: int | None, step: int | None, pid: int) -> None:
        if number is not None and 0 < number <= self._before:
            return
        if not number or number != self._rollback:
            raise ProtocolViolation("a rollback without a request")
        self._rollback = 0
        self._observer.rolled_back(step, pid)

    def _is_of_parking(self, number: int | None) -> bool:
        """False for an answer to a former process."""
        if number is not None and 0 < number <= self._before:
            return False
        if not number or number != self._parking:
            raise ProtocolViolation("a parked worker that is not known")
        self._parking = 0
        return True


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


def _death(message: dict[str, object]) -> JailExit:
    return from_warden(_integer(message, "signal"), _integer(message, "status"), message.get("oom") is True)


def _pid(message: dict[str, object]) -> int:
    return _integer(message, "pid") or 0


def _snapshots(kept: object) -> tuple[SnapshotInfo, ...]:
    if (
        not isinstance(kept, list)
        or len(kept) > MAX_SNAPSHOTS
        or not all(isinstance(one, dict) for one in kept)
    ):
        raise ProtocolViolation("a strange list of snapshots")
    return tuple(
        SnapshotInfo(
            step=_integer(one, "step") or 0,
            label=printable(str(one.get("label"))[:MAX_LABEL]),
            memory=_integer(one, "memory") or 0,
        )
        for one in kept
    )


def _integer(message: dict[str, object], key: str) -> int | None:
    value = message.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ProtocolViolation(f"a control message with a strange {key}")
    return value
