"""The zygote's loop: take requests, fork launchers, reap; end when the client, or the last jail, is gone.

Single-threaded by necessity: a fork copies only the calling thread, and a lock that another one held stays held.
Each living jail has its own slot, so that no two share a user id.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from cenote_security.walls import limits
from cenote_security.walls.identity import PER_ZYGOTE
from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import Home, Level
from cenote_security.walls.limits import jail_environment
from cenote_security.walls.namespaces import PROXY_VARIABLES
from cenote_worker.process.patient_wait import PatientWait
from cenote_worker.zygote import processes
from cenote_worker.zygote.descriptors import JailDescriptors, lift
from cenote_worker.zygote.preload import thread_count
from cenote_worker.zygote.spawn import SpawnRequest, run_and_exit, spawn
from cenote_worker.zygote.spec import MAX_MESSAGE, JailStartRequest
from cenote_worker.zygote.warden import loop
from cenote_worker.zygote.worker_start import Entry


class UidSlots:
    """Slots from 1 to `count - 1`. A freed slot is reused as late as possible: the kernel's counts for the user of an
    ended jail drop a little later than its processes end.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._last = 0
        self._taken: dict[int, int] = {}

    def take(self, jail: int) -> int:
        """Raises OSError when none is free."""
        if len(self._taken) >= self._count - 1:
            raise OSError(f"this zygote has {len(self._taken)} jails, and no user id for another")
        taken = set(self._taken.values())
        while True:
            self._last = self._last % (self._count - 1) + 1
            if self._last not in taken:
                self._taken[jail] = self._last
                return self._last

    def leave(self, jail: int) -> None:
        """Frees the slot of a jail that has ended, if it has one."""
        self._taken.pop(jail, None)


_DESCRIPTORS: Final = 4
_MAX_DESCRIPTORS: Final = 16
"""The descriptors of a jail, an environment, and the files of a handful of control groups."""

_END_SECONDS: Final = 1.0
"""A killed process is gone in milliseconds, unless it hangs in the kernel; then it cannot be ended."""


def variables_of(home: Home, whole_cpus: int, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a jail with this home."""
    programs, _, _ = sys.executable.rpartition("/")
    return jail_environment(
        workdir=home.workdir,
        temporary=home.temporary,
        programs=programs,
        whole_cpus=whole_cpus,
        extra=extra,
    )


class Zygote:
    """The state of a zygote that has finished its preparations.

    client: the socket of requests. client_life: a pidfd of the client. host_proc: a descriptor of the host's `/proc`.
    lingers: see ZygoteSpec.
    """

    def __init__(
        self,
        *,
        level: Level,
        entry: Entry,
        client: socket.socket,
        client_life: int,
        host_proc: int,
        lingers: bool = False,
    ) -> None:
        self._level = level
        self._entry = entry
        self._client = client
        self._client_life = client_life
        self._host_proc = host_proc
        self._lingers = lingers
        self.base_memory = limits.data_in_use(host_proc) + level.own_memory
        self._starts_in, self._starts_out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._launchers: dict[int, int] = {}
        self._wardens: dict[int, int] = {}
        self._seats = UidSlots(PER_ZYGOTE)
        self._ended: set[int] = set()
        self._cleaners: set[int] = set()
        self._wakeup, self._signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Serves until the client closes its socket or dies; then ends all jails, or waits until they have ended."""
        signal.set_wakeup_fd(self._signalled, warn_on_full_buffer=False)
        loop.heed_signals()
        # Wardens outlive their launchers, and at some levels a jail's processes outlive their warden: all come here.
        libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
        poll = select.poll()
        for descriptor in (self._client.fileno(), self._client_life, self._starts_in, self._wakeup):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._wakeup in ready:
                os.read(self._wakeup, 4096)
            self._tend()
            if self._client_life in ready:
                break
            if self._client.fileno() in ready and not self._take_request():
                break
        if self._lingers:
            self._outlive_jails()
        self._end_all()

    def _outlive_jails(self) -> None:
        poll = select.poll()
        for descriptor in (self._starts_in, self._wakeup):
            poll.register(descriptor, select.POLLIN)
        while self._launchers or self._wardens or self._ended or self._cleaners:
            if self._wakeup in dict(poll.poll()):
                os.read(self._wakeup, 4096)
            self._tend()

    def _take_request(self) -> bool:
        """Starts one jail. False when the client has closed its end."""
        message, descriptors, _, _ = socket.recv_fds(self._client, MAX_MESSAGE, _MAX_DESCRIPTORS)
        lifted = [lift(descriptor) for descriptor in descriptors]
        try:
            if message:
                self._start(JailStartRequest.from_json(message), lifted)
        finally:
            for descriptor in lifted:
                os.close(descriptor)
        return bool(message)

    def _start(self, request: JailStartRequest, descriptors: Sequence[int]) -> None:
        if len(descriptors) != _DESCRIPTORS + request.groups + request.has_environment:
            self._say_failed(request.number, "take the descriptors", 0, "the zygote has too many files open")
            return
        if thread_count(self._host_proc) > 1:
            self._say_failed(
                request.number, "fork", 0, "the zygote has threads; a preloaded module started one"
            )
            return
        try:
            spawning = self._spawn_request(request, JailDescriptors.arrived(descriptors, request.groups))
            self._launchers[spawn(spawning)] = request.number
        except OSError as error:
            self._seats.leave(request.number)
            self._say_failed(request.number, "fork", error.errno or 0, error.strerror or str(error))

    def _spawn_request(self, request: JailStartRequest, descriptors: JailDescriptors) -> SpawnRequest:
        home = self._level.home(request.number)
        proxy = PROXY_VARIABLES if request.egress else {}
        variables = variables_of(home, request.policy.whole_cpus, proxy)
        return SpawnRequest(
            level=self._level,
            entry=self._entry,
            allowance=request.allowance(self._seats.take(request.number), self.base_memory),
            settings=request.settings(home, self._level.name),
            environment={name: text for name, text in variables.items() if os.environ.get(name) != text},
            descriptors=descriptors,
            client=self._client,
            starts=self._starts_out,
            oom_kills=processes.oom_kills(self._host_proc),
        )

    # -- the dead ------------------------------------------------------------------------------------------

    def _tend(self) -> None:
        """Reaps; ends what is left of jails whose warden is dead; when nothing is left, removes their folders."""
        self._reap()
        if not self._ended:
            return
        children = self._children()
        self._note_starts()  # afterwards: a launcher reports its warden before it ends and the warden is adopted
        strays = children - self._launchers.keys() - self._wardens.keys() - self._cleaners
        _kill(strays)
        if not strays:
            self._clean_up()

    def _clean_up(self) -> None:
        """Removes the folders of ended jails, in a separate process: a jail may have left a million files."""
        ended = frozenset(self._ended)
        self._ended.clear()
        pid = libc.bare_fork()
        if pid == 0:
            run_and_exit(lambda: [self._level.clean_up(number) for number in ended])
        self._cleaners.add(pid)

    def _note_starts(self) -> None:
        with suppress(BlockingIOError):
            for line in os.read(self._starts_in, 65536).splitlines():
                number, pid = line.split()
                self._wardens[int(pid)] = int(number)

    def _reap(self) -> None:
        self._note_starts()
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._note_starts()  # of this one, or that it told of, since the last look
                number = self._launchers.pop(pid, None)
                if number is not None and number not in self._wardens.values():
                    self._seats.leave(number)
                if number is not None and status != 0:
                    self._say_failed(number, "start the jail", 0, "the process that was starting it died")
                self._cleaners.discard(pid)
                number = self._wardens.pop(pid, None)
                if number is not None:
                    self._seats.leave(number)
                if number is not None and not self._level.ends_with_warden:
                    self._ended.add(number)

    def _children(self) -> set[int]:
        children = os.open("thread-self/children", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._host_proc)
        with open(children) as pids:
            return set(map(int, pids.read().split()))

    def _end_all(self) -> None:
        """Kills all descendants, then removes everything."""
        wakeups = select.poll()
        wakeups.register(self._wakeup, select.POLLIN)
        wait = PatientWait(_END_SECONDS)
        while (left := self._children()) and wait.piece():
            _kill(left)
            wakeups.poll(_END_SECONDS * 100)
            self._reap()
        with suppress(OSError):
            self._level.close()

    def _say_failed(self, number: int, step: str, code: int, detail: str) -> None:
        message = {"op": "failed", "id": number, "step": step, "code": code, "detail": detail}
        with suppress(OSError):
            self._client.send(json.dumps(message).encode())


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
