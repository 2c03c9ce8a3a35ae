"""A process's connection to the descriptor store of its node, and the thread that replaces a store that has ended.

The store outlives the process that has started it. When it ends nevertheless, each process that supervises jails
notices it, starts another, and puts its own entries in again.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote_security.errors import CenoteError, UnavailableError, UsageError
from cenote_security.walls.fresh_python_unsafe import FreshPython
from cenote_security.walls.interpreter import running
from cenote_worker.descriptor_store.async_client import AsyncStoreClient
from cenote_worker.descriptor_store.daemon import READY
from cenote_worker.descriptor_store.message import (
    StoreMessage,
    StoreOperation,
    StoreStatus,
    address,
    close_all,
)
from cenote_worker.process.patient_wait import is_ready

ANSWER_SECONDS: Final = 5.0
"""A keeper does nothing that takes a millisecond."""

SILENT: Final = "the keeper of this node does not answer; what runs goes on, try again when it does"

START_SECONDS: Final = 20.0

RETURN_SECONDS: Final = 5.0
"""For a keeper that was killed to be replaced: whoever watches it (DescriptorStoreWatch) starts another at once."""

LINGER_SECONDS: Final = 30.0
"""For how long a keeper without clients and without entries waits for either."""

ABANDONED_SECONDS: Final = 300.0
"""For how long it holds what nobody works with any more: supervisors are replaced within seconds."""

_BREATH_SECONDS: Final = 0.01

NOBODY: Final = (ConnectionError, FileNotFoundError)
"""What a line to a keeper fails with while there is none: it left its socket, or took it along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """An entry, in copies: whoever got it owns the descriptors."""

    record: bytes
    descriptors: Sequence[int]


class DescriptorStoreClient:
    """Puts, gets and drops entries. Safe to use from several threads; connects again when the keeper was replaced.

    A keeper that was replaced holds nothing: see `DescriptorStoreWatch`. Calls raise UnavailableError when there
    is no keeper, none that takes more, or one that does not answer; while one owes an answer they do so at once.
    """

    def __init__(self, folder: Path, patience: float = 0.0, answer: float = ANSWER_SECONDS) -> None:
        """patience: seconds that a call waits for a keeper that is being replaced, RETURN_SECONDS where that is all
        that was asked for; not where the next one is filled anyway. answer: for one that is there.
        """
        self.folder = folder
        self._patience = patience
        self._answer = answer
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._owed = False
        """Whether the answer to a former question has not come yet."""
        self._teller = AsyncStoreClient(lambda: connect(folder, 0))

    def put(self, key: str, record: bytes, descriptors: Sequence[int] = ()) -> None:
        """Keeps copies of the descriptors under `key`, instead of what was there."""
        self._ask(StoreMessage(kind=StoreOperation.PUT, key=key, record=record, descriptors=descriptors))

    def put_soon(self, key: str, record: bytes, descriptors: Sequence[int] = ()) -> None:
        """As `put`, without waiting for it: for what is put again where there is another keeper.

        It is there before whatever anybody asks later: see AsyncStoreClient. A refusal is logged.
        """
        self._tell(StoreMessage(kind=StoreOperation.PUT, key=key, record=record, descriptors=descriptors))

    def get(self, key: str) -> StoredEntry | None:
        answer = self._ask(StoreMessage(kind=StoreOperation.GET, key=key))
        if answer.kind == StoreStatus.UNKNOWN:
            return None
        return StoredEntry(record=answer.record, descriptors=answer.descriptors)

    def drop(self, key: str) -> None:
        """Lets go of an entry. One that is not there is fine."""
        self._ask(StoreMessage(kind=StoreOperation.DROP, key=key))

    def drop_soon(self, key: str) -> None:
        """As `drop`, without waiting for it; see `put_soon`."""
        self._tell(StoreMessage(kind=StoreOperation.DROP, key=key))

    def settle(self) -> None:
        """Waits until all that was told is answered, or for as long as for an answer: for who has much to tell."""
        self._teller.settle(self._answer)

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin with `prefix`, sorted."""
        found: list[str] = []
        while True:
            after = found[-1].encode() if found else b""
            page = self._ask(StoreMessage(kind=StoreOperation.LIST, key=prefix, record=after)).record.decode()
            if not page:
                return found
            found += page.splitlines()

    def shut_down(self) -> None:
        """Ends the keeper, and with it every jail that nobody else holds."""
        with suppress(UnavailableError):
            self._ask(StoreMessage(kind=StoreOperation.SHUT_DOWN))
        self.close()

    def close(self) -> None:
        self._teller.close()
        with self._lock:
            self._hang_up()

    def _tell(self, message: StoreMessage) -> None:
        try:
            self._teller.tell(message)
        except (OSError, ValueError) as error:
            raise _unavailable(error) from error

    def _ask(self, message: StoreMessage) -> StoreMessage:
        if not (self._teller.settle(self._answer) and self._lock.acquire(timeout=self._answer)):
            raise UnavailableError(SILENT)
        try:
            answer = self._answered(message)
        finally:
            self._lock.release()
        if answer.kind == StoreStatus.REFUSED:
            close_all(answer.descriptors)
            raise UnavailableError(f"the keeper of this node refused: {answer.record.decode()}")
        return answer

    def _answered(self, message: StoreMessage) -> StoreMessage:
        try:
            return self._exchange(message)
        except TimeoutError as error:
            raise UnavailableError(SILENT) from error
        except (OSError, ValueError):
            return self._try_again(message)

    def _try_again(self, message: StoreMessage) -> StoreMessage:
        """On a fresh line: every operation may be done twice."""
        deadline = time.monotonic() + self._patience
        while True:
            self._hang_up()
            try:
                return self._exchange(message)
            except TimeoutError as error:
                raise UnavailableError(SILENT) from error
            except NOBODY as error:
                if time.monotonic() > deadline:
                    raise _unavailable(error) from error
            except (OSError, ValueError) as error:
                self._hang_up()
                raise _unavailable(error) from error
            time.sleep(_BREATH_SECONDS)

    def _exchange(self, message: StoreMessage) -> StoreMessage:
        """Raises TimeoutError when no answer comes in time; it is taken, and dropped, before the next question."""
        if self._socket is None:
            self._socket = connect(self.folder, self._answer)
        self._take_owed(self._socket)
        self._socket.settimeout(self._answer)
        message.send(self._socket)
        self._owed = True
        if not is_ready(self._socket, self._answer):
            raise TimeoutError
        answer = _received(self._socket)
        self._owed = False
        return answer

    def _take_owed(self, line: socket.socket) -> None:
        """It was waited for already: whoever asks next is not held up by a keeper that hangs."""
        if not self._owed:
            return
        line.settimeout(0)
        try:
            close_all(_received(line).descriptors)
        except BlockingIOError:
            raise TimeoutError from None
        self._owed = False

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket, self._owed = None, False


def _received(sock: socket.socket) -> StoreMessage:
    answer = StoreMessage.receive(sock)
    if answer is None:
        raise ConnectionResetError("it has ended")
    return answer


def _unavailable(error: Exception) -> UnavailableError:
    return UnavailableError(f"the keeper of this node cannot be asked: {error}")


def connect(folder: Path, patience: float = ANSWER_SECONDS) -> socket.socket:
    """A line to the keeper of a folder, on which nobody waits for longer. Raises OSError when there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(patience)
        with address(folder) as place:
            sock.connect(place)
    except OSError:
        sock.close()
        raise
    return sock


def ensure_store(folder: Path, linger: float = LINGER_SECONDS, abandoned: float = ABANDONED_SECONDS) -> None:
    """Starts a keeper unless one serves the folder, which is made if need be and must be closed to others.

    The keeper belongs to nobody: it outlives this process. linger, abandoned: see DescriptorStore.

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
            "cenote_worker.descriptor_store.daemon",
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


FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until what failed is tried again, doubled each time: the machine may have memory again by then."""

_log = logging.getLogger("cenote.keeper")


class DescriptorStoreWatch:
    """One thread per process that supervises jails. Until `close`, each `refill` is called for each new keeper."""

    def __init__(self, folder: Path) -> None:
        """Raises UnavailableError when there is no keeper and none can be started."""
        self._folder = folder
        self._lock = threading.Lock()
        self._refills: set[Callable[[], None]] = set()
        self._closed = threading.Event()
        self._socket = self._connected()
        threading.Thread(target=self._run, name="cenote-keeper-watch", daemon=True).start()

    def add(self, refill: Callable[[], None]) -> None:
        """refill: puts everything of one runtime; called on the watch's thread, where it adds and removes nothing."""
        with self._lock:
            self._refills.add(refill)

    def remove(self, refill: Callable[[], None]) -> None:
        """Behind this call it puts nothing any more."""
        with self._lock:
            self._refills.discard(refill)

    def close(self) -> None:
        self._closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        left: set[Callable[[], None]] = set()
        pause = FIRST_PAUSE
        while True:
            if not self._ends(pause if left else None):
                left, pause = self._refilled(left), min(2 * pause, LONGEST_PAUSE)
                continue
            if self._closed.is_set():
                return
            try:
                self._socket = self._connected()
            except (CenoteError, OSError):
                _log.exception("there is no keeper any more, and none can be started just now")
                self._closed.wait(FIRST_PAUSE)
                continue
            if self._closed.is_set():  # meanwhile: what `close` has shut down was the line to the former one
                self._socket.close()
                return
            left, pause = self._refilled(self._refills), FIRST_PAUSE

    def _ends(self, patience: float | None) -> bool:
        """Whether there is no line to a keeper any more, after so many seconds at the most."""
        try:
            self._socket.settimeout(patience)
            self._socket.recv(1)  # a keeper says nothing unasked: this returns at its end
        except TimeoutError:
            return False
        except OSError:
            pass
        self._socket.close()
        return True

    def _connected(self) -> socket.socket:
        while True:
            ensure_store(self._folder)
            with suppress(*NOBODY):  # that one was killed already
                line = connect(self._folder)
                line.settimeout(None)
                return line

    def _refilled(self, wanted: set[Callable[[], None]]) -> set[Callable[[], None]]:
        """Those of them that could not be called to their end."""
        left = set()
        with self._lock:
            for refill in self._refills & wanted:
                try:
                    refill()
                except Exception as error:  # noqa: BLE001  (of one, and the others are to be put)
                    _log.error("a runtime could not be handed to the new keeper yet: %s", error)
                    left.add(refill)
        return left
