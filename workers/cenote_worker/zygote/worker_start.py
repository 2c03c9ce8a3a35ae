"""How a fork of a warden becomes the worker: the same for the first one, and for each that restarts in the initial
state.

No process waits in the initial state: the warden forks one that does what the first worker did. A copy made right
before the first cell would contain all pages written during start-up. The cell writes to most of them again, and each
page would exist twice: 3.5 MB. A process that waits before its start-up still takes 2. The warden is a fork of the
same zygote, has not done the start-up either, and exists anyway.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import Level
from cenote_worker.jail.snapshots.protocol import BEGINNING
from cenote_worker.process.worker_settings import WorkerSettings
from cenote_worker.zygote.descriptors import FOR_WORKERS, FRAMES, PULSE, WARDEN, place


@dataclass(eq=False)
class BeginAgain(BaseException):
    """Raised in a process that was forked to begin where the worker began, to leave the warden's code.

    As an exception, so that it has no more of the warden's frames below it than the first worker had: programs that
    recurse until Python stops them count those. wanted: see `WorkerSettings`. borrower: the borrower's socket.
    """

    wanted: Mapping[str, object]
    borrower: int | None = None


class InitialState:
    """Stands in for a `Copy`."""

    pid: Final = BEGINNING
    memory: Final = 0

    def wake(self, then: Mapping[str, object]) -> int | None:
        """See `Copy.wake`. Raises BeginAgain in that process."""
        try:
            pid = libc.bare_fork()
        except OSError:
            return None
        if pid == 0:
            raise BeginAgain(then)
        return pid

    def lend(self, line: socket.socket, then: Mapping[str, object]) -> None:
        """See `Copy.lend`. Raises BeginAgain in the process that answers."""
        try:
            pid = libc.bare_fork()
        except OSError:
            return
        if pid == 0:
            raise BeginAgain(then, line.detach())

    def end(self) -> None:
        """Does nothing: there is no process."""

    def close(self) -> None:
        """Does nothing: there is no process."""


Entry = Callable[[int, WorkerSettings], None]
"""A worker's main: frames descriptor and settings. When it returns, the jail ends with status 0."""

EXTRA: Final = PULSE + 1
"""In a worker: the pipe on which the first one reports that it is ready, or the borrower's socket of a lent one."""

READY: Final = b"ready"
"""The report that it is ready."""

_TRUST_VARIABLES: Final = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE",
)  # fmt: skip
"""Of OpenSSL and with it Python, requests, curl, Node, git, and the AWS libraries."""


def trust_file(temporary: str) -> str:
    return f"{temporary}/.cenote-authorities.pem"


def trust_variables(temporary: str) -> dict[str, str]:
    """The variables. temporary: the folder of the file that they name."""
    return dict.fromkeys(_TRUST_VARIABLES, trust_file(temporary))


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """What a jail's random numbers come from. Drawn by the warden, so that all of its workers begin with the same."""

    python: int = field(default_factory=lambda: int.from_bytes(os.urandom(32)))
    numpy: int = field(default_factory=lambda: int.from_bytes(os.urandom(4)))
    torch: int = field(default_factory=lambda: int.from_bytes(os.urandom(8)))


@dataclass(frozen=True, kw_only=True)
class WorkerStart:
    """What a worker needs. environment: the variables that differ from this process's.

    trusted: PEM of the authorities that the jail's programs trust, for the file that `trust_variables` names; empty
    for the default ones.
    """

    level: Level
    entry: Entry
    settings: WorkerSettings
    environment: Mapping[str, str]
    trusted: str = ""
    seeds: Seeds = field(default_factory=Seeds)

    @property
    def keeps_copies(self) -> bool:
        return self.settings.policy.snapshots == "auto" and not self.level.own_kernel

    def fence(self) -> int:
        """Confines this process. Gives a descriptor of `/dev/null`. Raises WallError, OSError."""
        os.setsid()
        self.level.fence_worker()
        return os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)

    def begin(self, null: int, descriptors: Sequence[int], pipe: int) -> None:
        """The first worker's life. descriptors: its descriptors 1 to PULSE."""
        place([null, *descriptors, pipe])
        self._become_fresh()
        if self.trusted:
            Path(trust_file(self.settings.temporary)).write_text(self.trusted, encoding="ascii")
        os.write(EXTRA, READY)
        os.close(EXTRA)
        self.entry(FRAMES, self._told())

    def begin_again(self, null: int, again: BeginAgain) -> None:
        """The life of another one, at the same stack depth."""
        borrower = () if again.borrower is None else (again.borrower,)
        place([null, *FOR_WORKERS, PULSE, *borrower])
        self._become_fresh()
        self.entry(
            FRAMES,
            replace(self._told(), wanted=json.dumps(again.wanted), borrower=EXTRA if borrower else -1),
        )

    def _told(self) -> WorkerSettings:
        return replace(self.settings, warden=WARDEN, pulse=PULSE) if self.keeps_copies else self.settings

    def _become_fresh(self) -> None:
        """Resets what a worker inherits as a fork: environment, signals, random state, idle collector."""
        if not self.keeps_copies:
            os.close(PULSE)  # nothing there knows of it, and it would look like a timer of the program's
        os.umask(0o077)
        os.environ.update(self.environment)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _draw_other_numbers(self.seeds)
        _say_so_many_cpus(self.settings.policy.whole_cpus)
        gc.enable()


def _say_so_many_cpus(count: int) -> None:
    """Makes Python report the policy's number: not every level can make the C library do so."""
    os.cpu_count = lambda: count
    if sys.version_info >= (3, 13):
        os.process_cpu_count = lambda: count


def _draw_other_numbers(seeds: Seeds) -> None:
    """Gives this jail its own random states.

    Seeded with an integer, since gathering the 128 bits that numpy would take by itself dirties half a megabyte, and
    all that is needed is that no two jails draw the same numbers.
    """
    random.seed(seeds.python)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seeds.numpy)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seeds.torch)
