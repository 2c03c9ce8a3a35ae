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
"""Time for an answer. No operation of the store takes a millisecond."""

SILENT: Final = "the descriptor store of this node does not answer; what runs goes on, try again when it does"

START_SECONDS: Final = 20.0

RETURN_SECONDS: Final = 5.0
"""Time for a killed store to be replaced: the DescriptorStoreWatch of any process starts another at once."""

LINGER_SECONDS: Final = 30.0
"""How long a store without clients and without entries runs on."""

ABANDONED_SECONDS: Final = 300.0
"""How long a store without clients keeps its entries: supervisors are replaced within seconds."""

_BREATH_SECONDS: Final = 0.01

NOBODY: Final = (ConnectionError, FileNotFoundError)
"""Errors of a connection to a store that does not run, whether or not its socket is still there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """A copy of an entry: its receiver owns the descriptors."""

    record: bytes
    descriptors: Sequence[int]


class DescriptorStoreClient:
    """Puts, gets and drops entries. Safe to use from several threads; connects again when the store was replaced.

    A new store is empty: see `DescriptorStoreWatch`. Calls raise UnavailableError when the store does not run, takes
    no more, or does not answer; while an answer is overdue they raise it at once.
    """

    def __init__(self, folder: Path, patience: float = 0.0, answer: float = ANSWER_SECONDS) -> None:
        """patience: seconds that a call waits for a store that is being replaced: RETURN_SECONDS where the caller
        needs only this store, 0 where the next one is filled anyway. answer: seconds for a running store to answer.
        """
        self.folder = folder
        self._patience = patience
        self._answer = answer
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._owed = False
        """Whether the answer to an earlier request has not come yet."""
        self._teller = AsyncStoreClient(lambda: connect(folder, 0))

    def put(self, key: str, record: bytes, descriptors: Sequence[int] = ()) -> None:
        """Keeps copies of the descriptors under `key`, instead of what was there."""
        self._ask(StoreMessage(kind=StoreOperation.PUT, key=key, record=record, descriptors=descriptors))

    def put_soon(self, key: str, record: bytes, descriptors: Sequence[int] = ()) -> None:
        """As `put`, without waiting: for entries that are put again when the store was replaced.

        It arrives before every later request of any client: see AsyncStoreClient. A refusal is logged.
        """
        self._tell(StoreMessage(kind=StoreOperation.PUT, key=key, record=record, descriptors=descriptors))

    def get(self, key: str) -> StoredEntry | None:
        answer = self._ask(StoreMessage(kind=StoreOperation.GET, key=key))
        if answer.kind == StoreStatus.UNKNOWN:
            return None
        return StoredEntry(record=answer.record, descriptors=answer.descriptors)

    def drop(self, key: str) -> None:
        """Removes an entry. A missing entry is fine."""
        self._ask(StoreMessage(kind=StoreOperation.DROP, key=key))

    def drop_soon(self, key: str) -> None:
        """As `drop`, without waiting; see `put_soon`."""
        self._tell(StoreMessage(kind=StoreOperation.DROP, key=key))

    def settle(self) -> None:
        """Waits until all messages are answered, at most as long as for one answer. For callers that send many."""
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
        """Ends the store, and with it every jail whose sockets no other process holds."""
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
            raise UnavailableError(f"the descriptor store of this node refused: {answer.record.decode()}")
        return answer

    def _answered(self, message: StoreMessage) -> StoreMessage:
        try:
            return self._exchange(message)
        except TimeoutError as error:
            raise UnavailableError(SILENT) from error
        except (OSError, ValueError):
            return self._try_again(message)

    def _try_again(self, message: StoreMessage) -> StoreMessage:
        """Sends it on a fresh connection: every operation may be done twice."""
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
        """Raises TimeoutError when no answer comes in time. A late answer is dropped before the next request."""
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
        """Takes the overdue answer without waiting again: a store that hangs does not block the next request."""
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
    return UnavailableError(f"the descriptor store of this node cannot be asked: {error}")


def connect(folder: Path, patience: float = ANSWER_SECONDS) -> socket.socket:
    """A connection to the store of a folder, with this timeout in seconds. Raises OSError when no store runs."""
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
    """Starts a store unless one serves the folder, which is made if need be and must be closed to other users.

    The store outlives this process. linger, abandoned: see DescriptorStore.

    Raises UnavailableError, UsageError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(folder)
    deadline = time.monotonic() + START_SECONDS
    while not _answers(folder):
        if time.monotonic() > deadline:
            raise UnavailableError(f"no descriptor store could be started in {folder}")
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
            time.sleep(_BREATH_SECONDS)  # another store is starting, or ending


def _answers(folder: Path) -> bool:
    with suppress(OSError):
        connect(folder).close()
        return True
    return False


def check_private(folder: Path) -> None:
    """Raises UsageError for a folder that other users may enter, or own."""
    status = folder.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(f"{folder} must belong to this user and be closed to all others (mode 0700)")


FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Longest pause before a retry; pauses double each time. The machine may have memory again by then."""

_log = logging.getLogger("cenote.descriptor_store")


class DescriptorStoreWatch:
    """One thread per process that supervises jails. Until `close`, each `refill` is called for each new store."""

    def __init__(self, folder: Path) -> None:
        """Raises UnavailableError when no store runs and none can be started."""
        self._folder = folder
        self._lock = threading.Lock()
        self._refills: set[Callable[[], None]] = set()
        self._closed = threading.Event()
        self._socket = self._connected()
        threading.Thread(target=self._run, name="cenote-store-watch", daemon=True).start()

    def add(self, refill: Callable[[], None]) -> None:
        """refill: puts every entry of one runtime. Runs on the watch's thread; must not call `add` or `remove`."""
        with self._lock:
            self._refills.add(refill)

    def remove(self, refill: Callable[[], None]) -> None:
        """After this call `refill` is not called any more."""
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
                _log.exception("there is no descriptor store any more, and none can be started just now")
                self._closed.wait(FIRST_PAUSE)
                continue
            if self._closed.is_set():  # meanwhile: `close` has shut down the connection to the former store
                self._socket.close()
                return
            left, pause = self._refilled(self._refills), FIRST_PAUSE

    def _ends(self, patience: float | None) -> bool:
        """Whether the connection to the store has ended. patience: seconds to wait for that at most."""
        try:
            self._socket.settimeout(patience)
            self._socket.recv(1)  # a store sends nothing unasked: this returns when it ends
        except TimeoutError:
            return False
        except OSError:
            pass
        self._socket.close()
        return True

    def _connected(self) -> socket.socket:
        while True:
            ensure_store(self._folder)
            with suppress(*NOBODY):  # that store was killed already
                line = connect(self._folder)
                line.settimeout(None)
                return line

    def _refilled(self, wanted: set[Callable[[], None]]) -> set[Callable[[], None]]:
        """Calls each, and gives those that failed."""
        left = set()
        with self._lock:
            for refill in self._refills & wanted:
                try:
                    refill()
                except Exception as error:  # noqa: BLE001  (of one, and the others are to be put)
                    _log.error("a runtime could not be handed to the new descriptor store yet: %s", error)
                    left.add(refill)
        return left
