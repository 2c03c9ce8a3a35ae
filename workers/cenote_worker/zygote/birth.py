"""How a jail comes to life, three forks from the zygote, each process further in.

    zygote -> midwife    unshares, forks the warden, waits for the worker, tells the client, ends
                 -> warden     pid 1 of the jail: furnishes it, puts up the walls, forks the worker, stays
                      -> worker     the namespace

The midwife is there because a pid namespace begins with a child, and so that a slow start blocks nobody else: the
zygote forks it and goes on. A step that fails travels up the pipe as a `Failure`, and the client learns which it was.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Final, NoReturn

from cenote_security.walls import libc_unsafe as libc
from cenote_security.walls.environment import whole_cpus
from cenote_security.walls.level import Allowance, Level
from cenote_security.walls.wall import WallError, building
from cenote_worker.settings import WorkerSettings
from cenote_worker.zygote import warden
from cenote_worker.zygote.boarding_unsafe import Letter, board
from cenote_worker.zygote.descriptors import FRAMES, PULSE, WARDEN, JailDescriptors, place
from cenote_worker.zygote.shelf import MOST
from cenote_worker.zygote.spec import Failure

Entry = Callable[[int, WorkerSettings], None]
"""A worker's main: frames descriptor and settings. When it returns, the jail ends with status 0."""

START_SECONDS: Final = 20.0
"""A jail that is not ready by then is killed and reported. Two orders above an ordinary start, for a loaded host."""

_PROCESSES_PER_COPY: Final = 4
"""Copies count as processes of their jail: one part of them in so many at most."""

_PIPE: Final = PULSE + 1
"""In a worker, until it has said that it is ready."""

_READY: Final = b"ready"
_MAX_REPORT: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Inmates:
    """What the jail's own processes need.

    environment: the variables that differ from this process's, the policy's own apart. oom_kills: the machine's count
    of out-of-memory kills at this time.
    """

    level: Level
    entry: Entry
    allowance: Allowance
    settings: WorkerSettings
    environment: Mapping[str, str]
    descriptors: JailDescriptors
    oom_kills: int


@dataclass(frozen=True, kw_only=True)
class Birth(Inmates):
    """What a start needs, made by the zygote: what is computed here is computed before the fork, and so shared.

    births: a pipe by which the zygote learns the warden's pid.
    """

    client: socket.socket
    births: int


def deliver(birth: Birth) -> int:
    """Fork the midwife of a jail. Gives its pid, to the zygote only; returns at once."""
    pid = libc.bare_fork()
    if pid == 0:
        run_and_exit(lambda: _midwife(birth))
    return pid


def run_and_exit(role: Callable[[], object]) -> NoReturn:
    """Run a forked process's role and end it there: it must never return into its parent's code."""
    status = 1
    try:
        role()
        status = 0
    except BaseException as error:  # noqa: BLE001  (the last frame of a process)
        with suppress(BaseException):
            sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(status)


# -- midwife ----------------------------------------------------------------------------------------------


def _midwife(birth: Birth) -> None:
    number = birth.allowance.number
    listener: socket.socket | None = None
    try:
        _enter_groups(birth.descriptors.groups)
        birth.level.enter(birth.allowance)
        if birth.allowance.egress:
            listener = birth.level.listen()
    except Exception as error:  # noqa: BLE001  (the client is told, and this process ends)
        _tell_failure(birth.client, number, _failure(error))
        return
    read_end, write_end = os.pipe()
    pid = libc.bare_fork()
    if pid == 0:
        os.close(read_end)
        run_and_exit(lambda: _first_process(birth, write_end))
    os.close(write_end)
    handle = os.pidfd_open(pid)
    os.write(birth.births, f"{number} {pid}\n".encode())
    failure = _await_ready(read_end) or _hand_over(birth, handle, listener)
    if failure is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        _tell_failure(birth.client, number, failure)


def _hand_over(birth: Birth, handle: int, listener: socket.socket | None) -> Failure | None:
    """Give the client the jail. The kernel may refuse: jails of the client's own user can use its count up."""
    message = json.dumps({"op": "started", "id": birth.allowance.number, "isolation": birth.level.name})
    handles = [handle] if listener is None else [handle, listener.fileno()]
    try:
        with building("hand the jail over"):
            socket.send_fds(birth.client, [message.encode()], handles)
    except WallError as error:
        return _failure(error)
    return None


def _enter_groups(entrances: Sequence[int]) -> None:
    """Before the namespaces are made: the jail's view of control groups then begins at its own."""
    with building("enter the jail's control groups"):
        for entrance in entrances:
            os.write(entrance, b"0")
            os.close(entrance)


def _await_ready(pipe: int) -> Failure | None:
    """Wait for the worker's word or a failure of warden or worker, whichever comes first."""
    report = b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    deadline = time.monotonic() + START_SECONDS
    while not report.endswith(_READY):
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return Failure(step="start the jail", code=0, detail=f"not ready after {START_SECONDS:g} s")
        chunk = os.read(pipe, _MAX_REPORT)
        if not chunk:
            return _parse_failure(report)
        report += chunk
    return None


def _parse_failure(report: bytes) -> Failure:
    """A failure of our own comes as JSON; a program that a level starts says it in words of its own."""
    if not report:
        return Failure(step="start the jail", code=0, detail="its processes died before it was ready")
    try:
        return Failure(**json.loads(report))
    except ValueError:
        detail = report.decode(errors="replace").strip().replace("\n", " ")
        return Failure(step="start the sandbox", code=0, detail=detail)


def _failure(error: Exception) -> Failure:
    if isinstance(error, WallError):
        return Failure(step=error.step, code=error.code, detail=error.detail)
    code = error.errno or 0 if isinstance(error, OSError) else 0
    return Failure(step="start the jail", code=code, detail=f"{type(error).__name__}: {error}")


def _tell_failure(client: socket.socket, number: int, failure: Failure) -> None:
    message = {"op": "failed", "id": number, **asdict(failure)}
    client.send(json.dumps(message).encode())


# -- warden and worker ------------------------------------------------------------------------------------


def _first_process(birth: Birth, pipe: int) -> None:
    os.setsid()
    if not birth.level.own_kernel:
        be_warden(birth, pipe)
        return
    letter = Letter(allowance=birth.allowance, settings=birth.settings, entry=birth.entry.__module__)
    try:
        board(birth.level, letter, {**os.environ, **birth.environment}, birth.descriptors, pipe)
    except Exception as error:  # noqa: BLE001  (the client is told, and this process ends)
        _report(pipe, error)


def be_warden(inmates: Inmates, pipe: int) -> None:
    """The warden's whole life, in the jail's first process. pipe: where it is said that the jail is ready."""
    try:
        inmates.level.settle(inmates.allowance)
        inmates.level.fence_warden()
        pulse = libc.timerfd()
        line, worker_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = libc.bare_fork()
    except Exception as error:  # noqa: BLE001  (the client is told, and this process ends)
        _report(pipe, error)
        return
    if child == 0:
        run_and_exit(lambda: _worker(inmates, pipe, worker_line.fileno(), pulse))
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    place([null, null, null, inmates.descriptors.control, line.detach(), pulse])
    warden.watch(
        child,
        inmates.oom_kills,
        holds_signals=inmates.level.holds_signals,
        most_copies=min(MOST, inmates.allowance.processes // _PROCESSES_PER_COPY),
    )


def _worker(inmates: Inmates, pipe: int, line: int, pulse: int) -> None:
    try:
        os.setsid()
        inmates.level.fence_worker()
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    except Exception as error:  # noqa: BLE001  (the client is told, and this process ends)
        _report(pipe, error)
        return
    wanted = inmates.descriptors
    environment = {**inmates.environment, **_read_variables(wanted.environment)}
    place([null, wanted.stdout, wanted.stderr, wanted.frames, line, pulse, pipe])
    _become_fresh(environment)
    _say_so_many_cpus(whole_cpus(inmates.settings.cpus))
    os.write(_PIPE, _READY)
    os.close(_PIPE)
    keeps_copies = inmates.settings.snapshots and not inmates.level.own_kernel
    settings = replace(inmates.settings, warden=WARDEN, pulse=PULSE) if keeps_copies else inmates.settings
    inmates.entry(FRAMES, settings)


def _read_variables(file: int | None) -> dict[str, str]:
    """The policy's variables. The file's position is the client's too, so it is not used."""
    if file is None:
        return {}
    variables: dict[str, str] = json.loads(os.pread(file, os.fstat(file).st_size, 0))
    return variables


def _become_fresh(environment: Mapping[str, str]) -> None:
    """Undo what a worker inherits by being a fork: environment, signal handlers, random state, idle collector."""
    os.umask(0o077)
    os.environ.update(environment)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _draw_other_numbers()
    gc.enable()


def _say_so_many_cpus(count: int) -> None:
    """Make Python's own answer the policy's: not every level can make the C library's so."""
    os.cpu_count = lambda: count
    if sys.version_info >= (3, 13):
        os.process_cpu_count = lambda: count


def _draw_other_numbers() -> None:
    """Give this jail random states of its own.

    Seeded with an integer, since gathering the 128 bits that numpy would take by itself dirties half a megabyte, and
    all that is needed is that no two jails draw the same numbers.
    """
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(int.from_bytes(os.urandom(4)))
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int.from_bytes(os.urandom(8)))


def _report(pipe: int, error: Exception) -> None:
    os.write(pipe, json.dumps(asdict(_failure(error))).encode())
