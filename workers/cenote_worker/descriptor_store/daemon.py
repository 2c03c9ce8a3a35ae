"""A process that holds descriptors for other processes, so that what they refer to outlives those processes.

Like the descriptor store of a service manager, it never reads, writes or polls what it holds. A jail lives as long
as any process holds the far ends of its sockets; this process holds them while a supervisor is being replaced.
It has one thread and uses no library: it must not die before the processes that rely on it.
"""

from __future__ import annotations

import fcntl
import os
import resource
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cenote_worker.descriptor_store.message import (
    MAX_AWAITED,
    MAX_KEY,
    MAX_RECORD,
    StoreMessage,
    StoreOperation,
    StoreStatus,
    address,
    close_all,
)

_LOCK: Final = "keeper.lock"

READY: Final = b"ready"
TAKEN: Final = b"taken"
"""What a new store says to its starter; the second when another store serves the folder, or is about to."""

MAX_ENTRIES: Final = 100_000
"""Entries take some hundred bytes each; the table of open files is full before that."""

_MODEST: Final = ("value/", "spilled/", "lease/")
_INJECTION: Final = "/injection/"
"""Part of the keys of injections. A tenant may have any number of them, so they take half of the room at most:
there is always room for what runtimes need to start and to be taken over."""

_UCRED: Final = struct.Struct("3i")
_BACKLOG: Final = 128


@dataclass(frozen=True, slots=True)
class _Entry:
    record: bytes
    descriptors: Sequence[int]


@dataclass(slots=True, kw_only=True)
class DescriptorStore:
    """Serves `listener` until a client shuts it down, or until it has had no client for too long.

    linger: seconds without a client while it is empty. abandoned: seconds without a client while it has entries,
    which are lost with it. table: the number of descriptors that this process may have.
    """

    listener: socket.socket
    linger: float
    abandoned: float
    table: int
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _clients: set[socket.socket] = field(default_factory=set)
    _ending: bool = False
    _modest_entries: int = 0
    _modest_descriptors: int = 0

    def serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            idle_since = time.monotonic()
            while not self._ending:
                if self._clients:
                    idle_since = time.monotonic()
                patience = self.abandoned if self._entries else self.linger
                left = idle_since + patience - time.monotonic()
                if left <= 0:
                    return
                for key, _ in selector.select(None if self._clients else left):
                    self._attend(selector, key.fileobj)

    def _attend(self, selector: selectors.BaseSelector, ready: object) -> None:
        if ready is self.listener:
            with suppress(OSError):  # the client is gone, or no descriptor is left for it
                client = self.listener.accept()[0]
                if _is_ours(client):
                    client.setblocking(False)
                    selector.register(client, selectors.EVENT_READ)
                    self._clients.add(client)  # now: an unserved client would keep this process alive
                else:
                    client.close()
            return
        assert isinstance(ready, socket.socket)
        if not self._serve_all(ready):
            selector.unregister(ready)
            self._clients.remove(ready)
            ready.close()

    def _serve_all(self, client: socket.socket) -> bool:
        """Answers a client's messages before later ones of other clients. False when the client has gone."""
        try:
            return all(self._serve_one(client) for _ in range(MAX_AWAITED))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _serve_one(self, client: socket.socket) -> bool:
        """Answers one message. False at the end. Raises BlockingIOError when there is none."""
        try:
            message = StoreMessage.receive(client)
        except (
            ConnectionResetError
        ):  # the client was killed before it took an answer: its later messages are still there
            return True
        except ValueError as error:
            return self._tell(client, _refused(str(error)))
        return message is not None and self._tell(client, self._answer(message))

    def _tell(self, client: socket.socket, answer: StoreMessage) -> bool:
        """Sends an answer. A client waits for its answers: one that does not take them is broken."""
        try:
            answer.send(client)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):  # gone, which the end of its messages will show
            pass
        return True

    def _answer(self, message: StoreMessage) -> StoreMessage:
        if message.kind == StoreOperation.PUT:
            return self._put(message)
        close_all(message.descriptors)
        match message.kind:
            case StoreOperation.GET:
                entry = self._entries.get(message.key)
                if entry is None:
                    return StoreMessage(kind=StoreStatus.UNKNOWN)
                return StoreMessage(kind=StoreStatus.DONE, record=entry.record, descriptors=entry.descriptors)
            case StoreOperation.DROP:
                self._drop(message.key)
            case StoreOperation.LIST:
                return StoreMessage(kind=StoreStatus.DONE, record=self._listed(message))
            case StoreOperation.SHUT_DOWN:
                self._ending = True
            case _:
                return _refused("an unknown operation")
        return StoreMessage(kind=StoreStatus.DONE)

    def _put(self, message: StoreMessage) -> StoreMessage:
        full = message.key not in self._entries and not self._has_room(message)
        if full or len(message.key.encode()) > MAX_KEY or len(message.record) > MAX_RECORD:
            close_all(message.descriptors)
            return _refused("no room for that")
        self._drop(message.key)
        self._entries[message.key] = entry = _Entry(message.record, message.descriptors)
        self._count(message.key, entry, 1)
        return StoreMessage(kind=StoreStatus.DONE)

    def _has_room(self, message: StoreMessage) -> bool:
        if len(self._entries) >= MAX_ENTRIES:
            return False
        descriptors = self._modest_descriptors + len(message.descriptors)
        return not _is_modest(message.key) or (
            self._modest_entries < MAX_ENTRIES // 2 and descriptors <= self.table // 2
        )

    def _count(self, key: str, entry: _Entry, sign: int) -> None:
        if _is_modest(key):
            self._modest_entries += sign
            self._modest_descriptors += sign * len(entry.descriptors)

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._count(key, entry, -1)
            close_all(entry.descriptors)

    def _listed(self, message: StoreMessage) -> bytes:
        """Keys that begin with the message's key and sort after its record, in order, as many as fit."""
        after = message.record.decode()
        listed = bytearray()
        for key in sorted(key for key in self._entries if key.startswith(message.key) and key > after):
            line = key.encode() + b"\n"
            if len(listed) + len(line) > MAX_RECORD:
                break
            listed += line
        return bytes(listed)


def _is_modest(key: str) -> bool:
    return key.startswith(_MODEST) or _INJECTION in key


def _refused(reason: str) -> StoreMessage:
    return StoreMessage(kind=StoreStatus.REFUSED, record=reason.encode())


def _is_ours(client: socket.socket) -> bool:
    """Whether the client has our user id: a second check, should the folder be opened to other users."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return bool(_UCRED.unpack(credentials)[1] == os.geteuid())


def run(folder: str, linger: str, abandoned: str) -> None:
    """The whole life of a store: leaves its starter, serves, and removes its socket."""
    if os.fork():
        return
    os.setsid()
    os.umask(0o077)
    lock = _locked(Path(folder))
    if lock is None:
        os.write(1, TAKEN)
        os._exit(0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with (
        address(Path(folder)) as place,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
    ):
        Path(place).unlink(missing_ok=True)  # of a store that was killed
        listener.bind(place)
        listener.listen(_BACKLOG)
        _say_ready()
        descriptor_store = DescriptorStore(
            listener=listener, linger=float(linger), abandoned=float(abandoned), table=hard
        )
        descriptor_store.serve()
        Path(place).unlink(missing_ok=True)
    os._exit(0)


def _locked(folder: Path) -> int | None:
    """A lock that is held for as long as this process lives; None when another process holds it."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return lock


def _say_ready() -> None:
    os.write(1, READY)
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 1)
    os.close(nowhere)
