"""A process's line to the keeper of its node."""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote_security.errors import UnavailableError, UsageError
from cenote_security.walls.fresh_python_unsafe import FreshPython
from cenote_security.walls.interpreter import running
from cenote_worker.keeper.daemon import READY
from cenote_worker.keeper.message import Message, Operation, Status, close_all
from cenote_worker.keeper.place import address

_log = logging.getLogger("cenote.keeper")

ANSWER_SECONDS: Final = 5.0
"""A keeper does nothing that takes a millisecond."""

START_SECONDS: Final = 20.0

RETURN_SECONDS: Final = 5.0
"""For a keeper that was killed to be replaced: whoever watches it (KeeperWatch) starts another at once."""

LINGER_SECONDS: Final = 30.0
"""For how long a keeper without clients and without entries waits for either."""

ABANDONED_SECONDS: Final = 300.0
"""For how long it holds what nobody works with any more: supervisors are replaced within seconds."""

_BREATH_SECONDS: Final = 0.01

NOBODY: Final = (ConnectionError, FileNotFoundError)
"""What a line to a keeper fails with while there is none: it left its socket, or took it along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An entry, in copies: whoever got it owns the descriptors."""

    record: bytes
    descriptors: Sequence[int]


class KeeperClient:
    """Puts, gets and drops entries. Safe to use from several threads; connects again when the keeper was replaced.

    A keeper that was replaced holds nothing: see `KeeperWatch`. patience: seconds that a call waits for one that is
    being replaced, RETURN_SECONDS where it is all that was asked for; not where the next one is filled anyway. Calls
    raise UnavailableError when there is no keeper, or none that takes more.
    """

    def __init__(self, folder: Path, patience: float = 0.0) -> None:
        self.folder = folder
        self._patience = patience
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._owed = ""
        """The key of what was told, and not answered yet."""

    def put(self, key: str, record: bytes, descriptors: Sequence[int] = ()) -> None:
        """Keeps copies of the descriptors under `key`, instead of what was there."""
        self._ask(Message(kind=Operation.PUT, key=key, record=record, descriptors=descriptors))

    def put_soon(self, key: str, record: bytes, descriptors: Sequence[int] = ()) -> None:
        """As `put`, without waiting for it: for what is put again where there is another keeper.

        It is there before whatever anybody asks later, though this process be killed at once. A refusal is logged.
        """
        self._tell(Message(kind=Operation.PUT, key=key, record=record, descriptors=descriptors))

    def get(self, key: str) -> Kept | None:
        answer = self._ask(Message(kind=Operation.GET, key=key))
        if answer.kind == Status.UNKNOWN:
            return None
        return Kept(record=answer.record, descriptors=answer.descriptors)

    def drop(self, key: str) -> None:
        """Lets go of an entry. One that is not there is fine."""
        self._ask(Message(kind=Operation.DROP, key=key))

    def drop_soon(self, key: str) -> None:
        """As `drop`, without waiting for it; see `put_soon`."""
        self._tell(Message(kind=Operation.DROP, key=key))

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin with `prefix`, sorted."""
        found: list[str] = []
        while True:
            after = found[-1].encode() if found else b""
            page = self._ask(Message(kind=Operation.LIST, key=prefix, record=after)).record.decode()
            if not page:
                return found
            found += page.splitlines()

    def shut_down(self) -> None:
        """Ends the keeper, and with it every jail that nobody else holds."""
        with suppress(UnavailableError):
            self._ask(Message(kind=Operation.SHUT_DOWN))
        self.close()

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    def _ask(self, message: Message) -> Message:
        with self._lock:
            try:
                answer = self._exchange(message)
            except (OSError, ValueError):
                answer = self._try_again(message)
        if answer.kind == Status.REFUSED:
            close_all(answer.descriptors)
            raise UnavailableError(f"the keeper of this node refused: {answer.record.decode()}")
        return answer

    def _tell(self, message: Message) -> None:
        with self._lock:
            try:
                self._send(message)
                self._owed = message.key
            except (OSError, ValueError):
                _note(message.key, self._try_again(message))

    def _try_again(self, message: Message) -> Message:
        """On a fresh line: every operation may be done twice."""
        deadline = time.monotonic() + self._patience
        while True:
            self._hang_up()
            try:
                return self._exchange(message)
            except NOBODY as error:
                if time.monotonic() > deadline:
                    raise _unavailable(error) from error
            except (OSError, ValueError) as error:
                self._hang_up()
                raise _unavailable(error) from error
            time.sleep(_BREATH_SECONDS)

    def _exchange(self, message: Message) -> Message:
        return _answer(self._send(message))

    def _send(self, message: Message) -> socket.socket:
        """At most one message of a client waits in its socket. So a keeper, which takes one message of each client in
        turn, has taken it before what a successor of this process asks.
        """
        if self._socket is None:
            self._socket = connect(self.folder)
        if self._owed:
            key, self._owed = self._owed, ""
            _note(key, _answer(self._socket))
        message.send(self._socket)
        return self._socket

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket, self._owed = None, ""


def _answer(sock: socket.socket) -> Message:
    answer = Message.receive(sock)
    if answer is None:
        raise ConnectionResetError("it has ended")
    return answer


def _note(key: str, answer: Message) -> None:
    if answer.kind == Status.REFUSED:
        _log.warning("%s is not kept: the keeper refused: %s", key, answer.record.decode())


def _unavailable(error: Exception) -> UnavailableError:
    return UnavailableError(f"the keeper of this node cannot be asked: {error}")


def connect(folder: Path) -> socket.socket:
    """A line to the keeper of a folder. Raises OSError when there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(ANSWER_SECONDS)
        with address(folder) as place:
            sock.connect(place)
    except OSError:
        sock.close()
        raise
    return sock


def ensure_keeper(folder: Path, linger: float = LINGER_SECONDS, abandoned: float = ABANDONED_SECONDS) -> None:
    """Starts a keeper unless one serves the folder, which is made if need be and must be closed to others.

    The keeper belongs to nobody: it outlives this process. linger, abandoned: see Keeper.

    Raises UnavailableError, UsageError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(folder)
    deadline = time.monotonic() + START_SECONDS
    while not _answers(folder):
        if time.monotonic() > deadline:
            raise UnavailableError(f"no keeper could be started in {folder}")
        interpreter = running(())
        starter = FreshPython(
            interpreter,
            "cenote_worker.keeper.daemon",
            "run",
            str(folder),
            str(linger),
            str(abandoned),
            capture=True,
        )
        if starter.output(START_SECONDS) != READY:
            time.sleep(_BREATH_SECONDS)  # another is starting, or ending


def _answers(folder: Path) -> bool:
    with suppress(OSError):
        connect(folder).close()
        return True
    return False


def check_private(folder: Path) -> None:
    """Raises UsageError for a folder that others may enter, or own."""
    status = folder.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(f"{folder} must belong to this user and be closed to all others (mode 0700)")
