"""The parent of a platform's process, which restarts it: `python -m cenote.gateway.process.watcher OPTIONS PIPE`.

It restarts a process that has died or hangs. It does nothing else and holds no resources, so that little in it can
fail. `launch.start_platform` starts it; `cenote up --foreground` runs without it, for a service manager such as
systemd that restarts services itself.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
from contextlib import ExitStack, suppress
from typing import BinaryIO, Final

from cenote.gateway.process import logs
from cenote.gateway.process.announcement import announce, read_announcement, refused
from cenote.gateway.process.daemon_lock import DaemonLock, Running
from cenote.gateway.process.daemon_unsafe import Daemon, spawn
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.restart_policy import PATIENCE, Heartbeat, Restarts
from cenote.gateway.process.service_manager import EndSignal
from cenote_security.errors import CenoteError, UnavailableError

_MODULE = "cenote.gateway.process.daemon"
_LOOK_EVERY: Final = 1.0
_LAST_LINES: Final = 2.0
"""Seconds for a hung process to log the stacks of its threads; a stopped process cannot."""

_TOLD_TO_END = "the platform was told to end before it was ready, as by `cenote down`"

log = logging.getLogger("cenote.gateway")


class PlatformWatcher:
    """told: gets the first announcement of the first process. end: signals the end. patience: see Heartbeat."""

    def __init__(
        self, options: PlatformOptions, told: BinaryIO, end: EndSignal, patience: float = PATIENCE
    ) -> None:
        self._options = options
        self._patience = patience
        self._told = told
        self._end = end
        self._restarts = Restarts()
        self._ready = False

    def run(self) -> int:
        """Runs until the platform ends normally, fails its first start, or dies too often; an exit status."""
        while status := self._life():
            pause = self._restarts.pause(time.monotonic())
            if not self._ready or pause is None:
                log.error("the platform ended with status %s and is not started again", status)
                return 1
            log.warning("the platform ended with status %s and is started again", status)
            if self._end.wait(pause):
                return 0
        return 0

    def _life(self) -> int:
        """Runs one process from its start. Returns its exit status, which is 0 also if it was told to end."""
        with ExitStack() as opened:
            try:
                daemon = opened.enter_context(
                    spawn(_MODULE, self._options.to_json(), self._options.state.log)
                )
            except OSError as error:  # memory may be free again a little later
                log.error("no process can be started for the platform: %s", error)
                announce(self._told, refused(error))
                return 1
            life = os.pidfd_open(daemon.process.pid)
            try:
                status = self._end_of(daemon, life)
            finally:
                os.close(life)
        return 0 if self._end.wait(0) else status

    def _end_of(self, daemon: Daemon, life: int) -> int:
        watched: set[int] = {daemon.pipe, self._end.fileno(), life}
        words, heartbeat = _Words(), Heartbeat(patience=self._patience)
        while True:
            news = select.select(watched, [], [], _LOOK_EVERY)[0]
            if self._end.fileno() in news:
                daemon.process.terminate()
                watched.discard(self._end.fileno())
                heartbeat.end()
            if daemon.pipe in news:  # before its end: its last words are the reason
                more = os.read(daemon.pipe, 65536)
                if more and self._end.fileno() in watched:
                    heartbeat.hear(time.monotonic())
                if (word := words.add(more)) is not None:
                    self._heard(word)
                if not more:  # it is ending, or has ended
                    watched.discard(daemon.pipe)
                    heartbeat.end()
            elif life in news:
                return daemon.process.wait()
            elif heartbeat.hangs(time.monotonic()):
                heartbeat.end()
                _kill(daemon, life)

    def _heard(self, said: bytes) -> None:
        """Passes the announcement on, and keeps the ports for the next process: clients know them."""
        if not said and self._end.wait(0):
            announce(self._told, UnavailableError(_TOLD_TO_END))
        if not self._told.closed:
            with suppress(OSError), self._told:  # the reader is gone, and the platform continues
                self._told.write(said)
        try:
            self._options = self._options.at_ports_of(read_announcement(said))
        except (CenoteError, ValueError):
            return  # the process ends, or has ended
        self._ready = True


class _Words:
    """The output of one process: one announcement among empty lines."""

    def __init__(self) -> None:
        self._said = b""
        self._whole = False

    def add(self, more: bytes) -> bytes | None:
        """Returns the announcement once: when it is whole, or when `more` is empty and so nothing more will come."""
        if self._whole:
            return None
        self._said = (self._said + more).lstrip(b"\n")
        self._whole = not more or b"\n" in self._said
        return self._said.partition(b"\n")[0] if self._whole else None


def _kill(daemon: Daemon, life: int) -> None:
    pid = daemon.process.pid
    log.error("the platform (pid %d) gives no sign of life and is killed; it says what it is at below", pid)
    daemon.process.send_signal(signal.SIGUSR1)
    select.select([life], [], [], _LAST_LINES)
    daemon.process.kill()


def main(options: str, pipe: int, patience: float = PATIENCE) -> int:
    """Returns the exit status."""
    wanted = PlatformOptions.from_json(options)
    logs.set_up(logging.INFO, as_json=wanted.log_json)
    end = EndSignal()  # before the lock names this process as the one to signal
    with open(pipe, "wb") as told:
        try:
            lock = DaemonLock(wanted.state.watch)
            lock.write(Running(pid=os.getpid(), since=time.time()))
        except CenoteError as error:
            announce(told, error)
            return 1
        except OSError as error:
            announce(told, refused(error))
            return 1
        try:
            return PlatformWatcher(wanted, told, end, patience).run()
        finally:
            lock.release()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
