"""The zygote's loop: take requests, fork midwives, reap, and end everything when the client is gone.

Single-threaded by necessity: a fork copies only the calling thread, and whatever lock another one held stays held.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress
from typing import Final

from cenote_security.walls.level import Level
from cenote_worker.zygote.birth import Birth, Entry, deliver
from cenote_worker.zygote.descriptors import JailDescriptors, lift
from cenote_worker.zygote.spec import MAX_MESSAGE, JailRequest

_DESCRIPTORS_PER_JAIL: Final = 4


class Zygote:
    """The state of a zygote that has finished its preparations.

    client: the socket of requests. client_life: a pidfd of the client, or -1.
    """

    def __init__(self, level: Level, entry: Entry, client: socket.socket, client_life: int) -> None:
        self._level = level
        self._entry = entry
        self._client = client
        self._client_life = client_life
        self._births_in, self._births_out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._midwives: dict[int, int] = {}
        self._wardens: dict[int, int] = {}

    def run(self) -> None:
        """Serve until the client closes its socket or dies; then end all jails."""
        wakeup, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _do_nothing)
        poll = select.poll()
        for descriptor in (self._client.fileno(), self._client_life, self._births_in, wakeup):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if wakeup in ready:
                os.read(wakeup, 4096)
            self._note_births()
            self._reap()
            if self._client_life in ready:
                break
            if self._client.fileno() in ready and not self._take_request():
                break
        self._end_all()

    def _take_request(self) -> bool:
        """Start one jail. False when the client closed its end."""
        message, descriptors, _, _ = socket.recv_fds(self._client, MAX_MESSAGE, _DESCRIPTORS_PER_JAIL)
        if not message:
            return False
        frames, control, stdout, stderr = (lift(descriptor) for descriptor in descriptors)
        passed = JailDescriptors(frames=frames, control=control, stdout=stdout, stderr=stderr)
        request = JailRequest.from_json(message)
        try:
            self._start(request, passed)
        finally:
            for descriptor in passed.in_order():
                os.close(descriptor)
        return True

    def _start(self, request: JailRequest, descriptors: JailDescriptors) -> None:
        birth = Birth(
            level=self._level,
            entry=self._entry,
            request=request,
            descriptors=descriptors,
            client=self._client,
            births=self._births_out,
        )
        try:
            self._midwives[deliver(birth)] = request.number
        except OSError as error:
            self._say_failed(request.number, "fork", error.errno or 0, error.strerror or str(error))

    def _note_births(self) -> None:
        with suppress(BlockingIOError):
            for line in os.read(self._births_in, 65536).splitlines():
                number, pid = line.split()
                self._wardens[int(pid)] = int(number)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                number = self._midwives.pop(pid, None)
                if number is not None and status != 0:
                    self._say_failed(number, "start the jail", 0, "the process that was starting it died")
                number = self._wardens.pop(pid, None)
                if number is not None:
                    self._level.clean_up(number)

    def _say_failed(self, number: int, step: str, code: int, detail: str) -> None:
        message = {"op": "failed", "id": number, "step": step, "code": code, "detail": detail}
        with suppress(OSError):
            self._client.send(json.dumps(message).encode())

    def _end_all(self) -> None:
        """Kill midwives, then the wardens that they leave behind. A warden's death ends its jail."""
        for pid in [*self._midwives, *self._wardens]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _do_nothing(_number: int, _frame: object) -> None:
    """A handler must exist for the wake-up descriptor to be written."""
