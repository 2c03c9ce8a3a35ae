"""Sends requests to a descriptor store without waiting for it, for threads that have other work to do."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cenote_worker.descriptor_store.message import MAX_AWAITED, StoreMessage, StoreStatus, close_all

_log = logging.getLogger("cenote.descriptor_store")

_FULL: Final = (errno.EAGAIN, errno.ETOOMANYREFS)
"""The socket is full, or the user has too many descriptors in flight: it takes no more for now."""


class AsyncStoreClient:
    """Safe to use from several threads. connect: gives a non-blocking connection to the store; OSError without one.

    When `tell` returns, the message is in the store's socket, ahead of every later request of any client, even if
    this process is killed at once. The exception: a store does not answer and its socket is full. Then a thread
    sends it later, only the newest message for each key.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._all_told = threading.Condition(self._lock)
        self._line: socket.socket | None = None
        self._awaited: deque[str] = deque()
        """Keys of the messages that are in the socket and not answered yet."""
        self._left: dict[str, StoreMessage] = {}
        """Messages that the socket had no room for, with their own copies of the descriptors."""
        self._carrying = False
        """Whether the thread runs: then only it uses the connection."""

    def tell(self, message: StoreMessage) -> None:
        """Puts or drops an entry. A refusal is logged. Raises OSError when there is no store."""
        with self._lock:
            if not self._carrying:
                if self._told_again(message):
                    return
                self._carry_on()
            self._leave(message)

    def settle(self, patience: float) -> bool:
        """Whether all messages have been answered. patience: seconds to wait for that."""
        with self._lock:
            if not self._carrying:
                self._hear_or_hang_up()
                try:
                    if self._awaited:
                        self._carry_on()
                except OSError:
                    return False
            return self._all_told.wait_for(lambda: not self._carrying, patience)

    def close(self) -> None:
        """What is in the socket still reaches the store."""
        with self._lock:
            self._forget()
            if self._carrying and self._line is not None:
                self._line.shutdown(socket.SHUT_RDWR)  # the thread notices, and ends
            elif not self._carrying:
                self._hang_up()

    # -- with the lock held, by the user of the connection --

    def _told_again(self, message: StoreMessage) -> bool:
        """Sends it, on a fresh connection if need be: every operation may be done twice. Raises OSError."""
        if self._line is not None:
            try:
                return self._told(message)
            except (OSError, ValueError):
                self._hang_up()
        return self._told(message)

    def _told(self, message: StoreMessage) -> bool:
        """Sends it; False when the store's socket is full."""
        if self._line is None:
            self._line = self._connect()
        self._hear(self._line)
        if len(self._awaited) >= MAX_AWAITED:
            return False
        try:
            message.send(self._line, socket.MSG_DONTWAIT)
        except OSError as error:
            if error.errno in _FULL and self._awaited:
                return False
            raise
        self._awaited.append(message.key)
        return True

    def _hear(self, line: socket.socket) -> None:
        """Reads the answers that are there. Raises OSError when the store has ended."""
        while self._awaited:
            try:
                answer = StoreMessage.receive(line)
            except BlockingIOError:
                return
            if answer is None:
                raise ConnectionResetError("it has ended")
            key = self._awaited.popleft()
            if answer.kind == StoreStatus.REFUSED:
                _log.warning("%s is not kept: the descriptor store refused: %s", key, answer.record.decode())

    def _hear_or_hang_up(self) -> None:
        try:
            if self._line is not None:
                self._hear(self._line)
        except (OSError, ValueError):
            self._hang_up()

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None
        self._awaited.clear()

    # -- what has to wait --

    def _leave(self, message: StoreMessage) -> None:
        """Leaves it to the thread, in order. It replaces earlier messages for the same key."""
        copies = replace(message, descriptors=[os.dup(each) for each in message.descriptors])
        self._drop_left(message.key)
        self._left[message.key] = copies

    def _drop_left(self, key: str) -> None:
        former = self._left.pop(key, None)
        if former is not None:
            close_all(former.descriptors)

    def _forget(self) -> None:
        for key in list(self._left):
            self._drop_left(key)

    def _carry_on(self) -> None:
        """Starts the thread if need be. Raises OSError where the machine has no thread left."""
        try:
            threading.Thread(target=self._carry, name="cenote-store-calls", daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error
        self._carrying = True

    def _carry(self) -> None:
        """Runs until all of it has been answered, or there is no store any more."""
        while True:
            with self._lock:
                line = self._carried()
                if line is None:
                    self._carrying = False
                    self._all_told.notify_all()
                    return
            _await_answer(line)

    def _carried(self) -> socket.socket | None:
        """Sends what there is room for. Gives the connection on which more is awaited."""
        try:
            self._hear_or_hang_up()
            while self._left and self._told_again(next(iter(self._left.values()))):
                self._drop_left(next(iter(self._left)))
        except (OSError, ValueError) as error:
            # The watch fills the next store.
            _log.warning("what was to be kept is not told, since there is no descriptor store: %s", error)
            self._hang_up()
            self._forget()
        return self._line if self._awaited else None


def _await_answer(line: socket.socket) -> None:
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.poll()
