"""How a jail is started: three forks from the zygote, each process further in.

    zygote -> launcher   unshares, forks the warden, waits for the worker, tells the client, ends
                 -> warden     pid 1 of the jail: prepares it, puts up the walls, forks the worker, stays
                      -> worker     the namespace

The launcher is there because a pid namespace begins with a child, and so that a slow start blocks nothing else: the
zygote forks it and goes on. A step that fails travels up the pipe as a `StartFailure`, which names the step to the
client.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final, NoReturn

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_security.walls.level import JailAllowance, Level, WallError, building
from cenote_worker.process.patient_wait import PatientWait
from cenote_worker.process.pristine import own_builtins
from cenote_worker.process.worker_settings import WorkerSettings
from cenote_worker.zygote.descriptors import LAST_PID, WORKER_RULES, JailDescriptors, place
from cenote_worker.zygote.gvisor_exec_unsafe import BootMessage, exec_gvisor
from cenote_worker.zygote.spec import StartFailure
from cenote_worker.zygote.warden import loop
from cenote_worker.zygote.warden.programs import attend
from cenote_worker.zygote.warden.snapshot_store import MOST
from cenote_worker.zygote.worker_start import READY, BeginAgain, Entry, WorkerStart, trust_variables

START_SECONDS: Final = 20.0
"""A jail that is not ready by then is killed and reported. A hundred ordinary starts, for a loaded host."""

_PROCESSES_PER_COPY: Final = 4
"""Copies count as processes of their jail: at most one copy per this number of processes."""

_MAX_REPORT: Final = 4096


@dataclass(frozen=True, kw_only=True)
class JailProcesses:
    """What the jail's own processes need.

    environment: the variables that differ from this process's, without the policy's own. oom_kills: the machine's
    count of out-of-memory kills at this time.
    """

    level: Level
    entry: Entry
    allowance: JailAllowance
    settings: WorkerSettings
    environment: Mapping[str, str]
    descriptors: JailDescriptors
    oom_kills: int


@dataclass(frozen=True, kw_only=True)
class SpawnRequest(JailProcesses):
    """The input of a start, made by the zygote: it is computed before the fork, and so shared.

    starts: a pipe by which the zygote learns the warden's pid.
    """

    client: socket.socket
    starts: int


def spawn(request: SpawnRequest) -> int:
    """Forks the launcher of a jail. Returns its pid, at once, and in the zygote only."""
    pid = libc.bare_fork()
    if pid == 0:
        run_and_exit(lambda: _launcher(request))
    return pid


def run_and_exit(role: Callable[[], object]) -> NoReturn:
    """Runs a forked process's role and ends the process: it must never return into its parent's code.

    A role that raises has a bug, and ends with EX_SOFTWARE, which no role exits with otherwise.
    """
    status = os.EX_SOFTWARE
    try:
        role()
        status = 0
    except BaseException as error:  # noqa: BLE001  (the last frame of a process)
        with suppress(BaseException), own_builtins():
            sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(status)


# -- launcher ---------------------------------------------------------------------------------------------


def _launcher(request: SpawnRequest) -> None:
    number = request.allowance.number
    listener: socket.socket | None = None
    try:
        _enter_groups(request.descriptors.groups)
        request.level.enter(request.allowance)
        if request.allowance.egress:
            listener = request.level.listen()
    except Exception as error:  # noqa: BLE001  (the client is told, and this process ends)
        _tell_failure(request.client, number, _failure(error))
        return
    read_end, write_end = os.pipe()
    pid = libc.bare_fork()
    if pid == 0:
        os.close(read_end)
        run_and_exit(lambda: _first_process(request, write_end))
    os.close(write_end)
    handle = os.pidfd_open(pid)
    os.write(request.starts, f"{number} {pid}\n".encode())
    failure = _await_ready(read_end) or _hand_over(request, handle, listener)
    if failure is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        _tell_failure(request.client, number, failure)


def _hand_over(request: SpawnRequest, handle: int, listener: socket.socket | None) -> StartFailure | None:
    """Passes the jail to the client. The kernel may refuse: the user's descriptors in flight are limited."""
    message = json.dumps({"op": "started", "id": request.allowance.number, "isolation": request.level.name})
    handles = [handle] if listener is None else [handle, listener.fileno()]
    try:
        with building("hand the jail over"):
            socket.send_fds(request.client, [message.encode()], handles)
    except WallError as error:
        return _failure(error)
    return None


def _enter_groups(entrances: Sequence[int]) -> None:
    """Joins the control groups. Before the namespaces are made: the jail's view then begins at its own groups."""
    with building("enter the jail's control groups"):
        for entrance in entrances:
            os.write(entrance, b"0")
            os.close(entrance)


def _await_ready(pipe: int) -> StartFailure | None:
    """Waits for the worker's report or a failure of warden or worker, whichever comes first."""
    report = b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    wait = PatientWait(START_SECONDS)
    while not report.endswith(READY):
        piece = wait.piece()
        if not poll.poll(piece * 1000):
            if piece:
                continue
            return StartFailure(step="start the jail", code=0, detail=f"not ready after {START_SECONDS:g} s")
        chunk = os.read(pipe, _MAX_REPORT)
        if not chunk:
            return _parse_failure(report)
        report += chunk
    return None


def _parse_failure(report: bytes) -> StartFailure:
    """Parses a failure: our own come as JSON; a program that a level starts writes plain text."""
    if not report:
        return StartFailure(step="start the jail", code=0, detail="its processes died before it was ready")
    try:
        return StartFailure(**json.loads(report))
    except ValueError:
        detail = report.decode(errors="replace").strip().replace("\n", " ")
        return StartFailure(step="start the sandbox", code=0, detail=detail)


def _failure(error: Exception) -> StartFailure:
    if isinstance(error, WallError):
        return StartFailure(step=error.step, code=error.code, detail=error.detail)
    code = error.errno or 0 if isinstance(error, OSError) else 0
    return StartFailure(step="start the jail", code=code, detail=f"{type(error).__name__}: {error}")


def _tell_failure(client: socket.socket, number: int, failure: StartFailure) -> None:
    message = {"op": "failed", "id": number, **asdict(failure)}
    client.send(json.dumps(message).encode())


# -- warden and worker ------------------------------------------------------------------------------------


def _first_process(request: SpawnRequest, pipe: int) -> None:
    os.setsid()
    if not request.level.own_kernel:
        be_warden(request, pipe)
        return
    letter = BootMessage(
        allowance=request.allowance, settings=request.settings, entry=request.entry.__module__
    )
    try:
        exec_gvisor(request.level, letter, {**os.environ, **request.environment}, request.descriptors, pipe)
    except Exception as error:  # noqa: BLE001  (the client is told, and this process ends)
        _report(pipe, error)


def be_warden(inmates: JailProcesses, pipe: int) -> None:
    """The warden's whole life, in the jail's first process. pipe: for the report that the jail is ready.

    Also the life of each process that the warden forks to begin where the worker began.
    """
    try:
        inmates.level.settle(inmates.allowance)
        inmates.level.fence_warden()
        pulse = libc.timerfd()
        line, worker_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        start = _start(inmates)
        child = libc.bare_fork()
    except Exception as error:  # noqa: BLE001  (the client is told, and this process ends)
        _report(pipe, error)
        return
    wanted = inmates.descriptors
    for_workers = (wanted.stdout, wanted.stderr, wanted.frames, worker_line.detach())
    if child == 0:
        run_and_exit(lambda: _first_worker(start, (*for_workers, pulse), pipe))
    _place_for_warden(wanted.control, line.detach(), pulse, start, for_workers)
    again = loop.run_warden(
        child,
        inmates.oom_kills,
        holds_signals=inmates.level.holds_signals,
        last_pid=inmates.level.last_pid,
        most_copies=min(MOST, inmates.allowance.policy.processes // _PROCESSES_PER_COPY)
        if start.keeps_copies
        else 0,
        attend=lambda descriptors: run_and_exit(lambda: attend(start, descriptors)),
    )
    if again is not None:
        run_and_exit(lambda: _another_worker(start, again))


def _first_worker(start: WorkerStart, descriptors: Sequence[int], pipe: int) -> None:
    try:
        null = start.fence()
    except Exception as error:  # noqa: BLE001  (the client is told, and this process ends)
        _report(pipe, error)
        return
    start.begin(null, descriptors, pipe)


def _another_worker(start: WorkerStart, again: BeginAgain) -> None:
    start.begin_again(start.fence(), again)


def _start(inmates: JailProcesses) -> WorkerStart:
    """Raises OSError."""
    variables, trusted = _read_environment(inmates.descriptors.environment)
    trust = trust_variables(inmates.settings.temporary) if trusted else {}
    return WorkerStart(
        level=inmates.level,
        entry=inmates.entry,
        settings=inmates.settings,
        environment={**inmates.environment, **trust, **variables},
        trusted=trusted,
    )


def _place_for_warden(
    control: int, line: int, pulse: int, start: WorkerStart, for_workers: Sequence[int]
) -> None:
    """Places the warden's descriptors. A worker's descriptors stay open only if another worker may need them."""
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    own = (null, null, null, control, line, pulse)
    level = start.level
    if not start.keeps_copies:
        for_workers, level.last_pid = (null,) * len(for_workers), -1
    if level.worker_rules < 0:
        level.last_pid = -1
        place((*own, *for_workers))
        return
    last_pid = () if level.last_pid < 0 else (level.last_pid,)
    place((*own, *for_workers, level.worker_rules, *last_pid))
    level.worker_rules, level.last_pid = WORKER_RULES, LAST_PID if last_pid else -1


def _read_environment(file: int | None) -> tuple[dict[str, str], str]:
    """The policy's variables, and the trusted PEM. The client shares the file's position, so it is not used."""
    if file is None:
        return {}, ""
    found = json.loads(os.pread(file, os.fstat(file).st_size, 0))
    return found["variables"], found["trusted"]


def _report(pipe: int, error: Exception) -> None:
    os.write(pipe, json.dumps(asdict(_failure(error))).encode())
