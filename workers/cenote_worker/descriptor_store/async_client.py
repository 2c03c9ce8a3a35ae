"""Sends requests to a descriptor store without waiting for it, for threads that serve others meanwhile."""

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

_log = logging.getLogger("cenote.keeper")

_FULL: Final = (errno.EAGAIN, errno.ETOOMANYREFS)
"""A socket, or what a user may have under way in all of them, takes no more for now."""


class AsyncStoreClient:
    """Safe to use from several threads. connect: gives a line to the keeper that does not block; OSError without one.

    What is told is in the keeper's socket when `tell` returns, and there before whatever anybody asks later, though
    this process be killed at once; unless a keeper that does not answer has so much before it that the socket is
    full. Then a thread carries it there, the newest for each key.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._all_told = threading.Condition(self._lock)
        self._line: socket.socket | None = None
        self._awaited: deque[str] = deque()
        """Keys of what is in the socket and not answered yet."""
        self._left: dict[str, StoreMessage] = {}
        """What the socket had no room for, with descriptors of its own."""
        self._carrying = False
        """Whether the thread is there: nobody else touches the line then."""

    def tell(self, message: StoreMessage) -> None:
        """Puts or drops an entry. A refusal is logged. Raises OSError when there is no keeper."""
        with self._lock:
            if not self._carrying:
                if self._told_again(message):
                    return
                self._carry_on()
            self._leave(message)

    def settle(self, patience: float) -> bool:
        """Whether all that was told has been answered, within so many seconds."""
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
        """What is in the socket reaches the keeper still."""
        with self._lock:
            self._forget()
            if self._carrying and self._line is not None:
                self._line.shutdown(socket.SHUT_RDWR)  # the thread finds it so, and ends
            elif not self._carrying:
                self._hang_up()

    # -- for whoever has the lock, and the line --

    def _told_again(self, message: StoreMessage) -> bool:
        """On a fresh line if need be: every operation may be done twice. Raises OSError."""
        if self._line is not None:
            try:
                return self._told(message)
            except (OSError, ValueError):
                self._hang_up()
        return self._told(message)

    def _told(self, message: StoreMessage) -> bool:
        """False when the keeper has enough before it."""
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
        """The answers that are there. Raises OSError when the keeper has gone."""
        while self._awaited:
            try:
                answer = StoreMessage.receive(line)
            except BlockingIOError:
                return
            if answer is None:
                raise ConnectionResetError("it has ended")
            key = self._awaited.popleft()
            if answer.kind == StoreStatus.REFUSED:
                _log.warning("%s is not kept: the keeper refused: %s", key, answer.record.decode())

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
        """To the thread, in its order: what was said of the key before counts no more."""
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
        """Raises OSError where the machine has no thread left."""
        try:
            threading.Thread(target=self._carry, name="cenote-keeper-told", daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from error
        self._carrying = True

    def _carry(self) -> None:
        """Until all of it has been answered, or there is no keeper any more."""
        while True:
            with self._lock:
                line = self._carried()
                if line is None:
                    self._carrying = False
                    self._all_told.notify_all()
                    return
            _await_answer(line)

    def _carried(self) -> socket.socket | None:
        """Sends what there is room for. The line on which more is awaited."""
        try:
            self._hear_or_hang_up()
            while self._left and self._told_again(next(iter(self._left.values()))):
                self._drop_left(next(iter(self._left)))
        except (OSError, ValueError) as error:
            # The next keeper is filled by whoever watches.
            _log.warning("what was to be kept is not told, for want of a keeper: %s", error)
            self._hang_up()
            self._forget()
        return self._line if self._awaited else None


def _await_answer(line: socket.socket) -> None:
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.poll()
