"""The programs that run beside a worker: each has an attendant, a process of the jail that starts it and ends it with
its children.

The warden forks an attendant for each program. The attendant is in its own Landlock domain below the warden's; the
program is in a further one below that, with the walls of a worker. So no program can reach an attendant, and a signal
of the attendant to all processes reaches the program and all that it has started, in any session and with any parent,
and nothing else (Landlock's scope of signals, Linux 6.12). The kernel signals all of them at once: none escapes by
forking meanwhile. Where signals have no such scope, the processes below the program or in its session are ended one
by one.

A program that ends by itself leaves its background processes running, as a cell does.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NoReturn

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.execution.programs import MAX_REPORT, MAX_SPEC, NOT_EXECUTABLE, NOT_FOUND, ProgramSpec
from cenote_worker.zygote.descriptors import place
from cenote_worker.zygote.processes import StartTime, all_below, in_sessions, start_time_at
from cenote_worker.zygote.warden.file_operations import carry_out
from cenote_worker.zygote.worker_start import WorkerStart

MOST: Final = 64
"""Programs at once. Each needs a process for its attendant, and descriptors of its caller."""

Attend = Callable[[Sequence[int]], NoReturn]
"""An attendant's main, called with its descriptors."""

Cause = Literal["", "worker", "rollback"]
"""Why the warden has killed a program younger than the state from which the worker continues: the worker died, or was
rolled back. Empty where something else has killed its attendant."""


class AttendedPrograms:
    """The programs of one jail. attendants: by pid, the numbers of their request messages and their start times."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend
        self.attendants: dict[int, tuple[int, StartTime]] = {}

    def begin(self, number: int, descriptors: Sequence[int]) -> int:
        """Forks an attendant. Gives an errno if that fails, otherwise 0. Closes the descriptors."""
        try:
            if len(self.attendants) >= MOST:
                return errno.EAGAIN
            pid = libc.bare_fork()
        except OSError as error:
            return error.errno or errno.EAGAIN
        else:
            if pid == 0:
                self._attend(descriptors)
            # Not from `/proc`, which does not show it yet.
            now, _ = start_time_at(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
            self.attendants[pid] = number, (now, pid)
            return 0
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def older(self, than: StartTime) -> list[int]:
        """Attendants that began before this time: their programs go on, with what those have started since."""
        return [pid for pid, (_, born) in self.attendants.items() if born <= than]

    def end(self, number: int) -> None:
        """Kills an attendant that does not obey, or has lost its caller."""
        for pid, (found, _) in self.attendants.items():
            if found == number:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def forget(self, pid: int) -> tuple[int, StartTime]:
        """Removes an attendant that has ended. Gives its number and start time."""
        return self.attendants.pop(pid)


SPEC: Final = 0
LINE: Final = 1
STREAMS: Final = (2, 3, 4)
"""The positions of the descriptors that come with a program's order: its spec; the socket to the caller; the
program's standard streams.
"""

COUNT: Final = 5

_LINE: Final = 3
_STREAMS: Final = (4, 5, 6)
_SPEC: Final = 7
_RULES: Final = 8
"""First descriptor of the rules in an attendant. 0 to 2 are /dev/null."""

_PAUSE: Final = 0.001
_NUMBER: Final = struct.Struct("i")
_OWN_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)
"""Signals that this process handles or ignores, and a program does not."""

Command = dict[str, object]


class Attendant:
    """The attendant of one program."""

    def __init__(self, start: WorkerStart, spec: ProgramSpec) -> None:
        self._start = start
        self._spec = spec
        self._line = socket.socket(fileno=_LINE)
        self._wakeup, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._holds_signals = _enter_domain(start)
        self._pid = self._session = 0

    def run(self) -> None:
        """Runs until the program has ended, by itself or at its caller's request."""
        try:
            self._session, self._pid = _begin(self._start, self._spec)
        except OSError as error:
            self._say({"op": "failed", "code": error.errno})
            return
        rules = (_RULES,) if self._start.level.worker_rules >= 0 else ()
        for descriptor in (*_STREAMS, _SPEC, *rules):  # the program's alone: its streams end with it
            os.close(descriptor)
        self._say({"op": "started", "pid": self._pid})
        status = self._attend()
        self._say({"op": "ended", **_how(status)})

    def _attend(self) -> int:
        poll = select.poll()
        poll.register(_LINE, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        killing = False
        while (status := self._ended()) is None:
            ready = dict(poll.poll())
            if self._wakeup in ready:
                with suppress(BlockingIOError):
                    os.read(self._wakeup, 512)
            if _LINE in ready and not killing and not self._obey():
                killing = True
                poll.unregister(_LINE)
                self._kill()
        if killing:
            self._kill()  # processes started while the first signal was delivered
        return status

    def _ended(self) -> int | None:
        """The status of the program, if it has ended. This process may have other children, if the program made it
        their parent.
        """
        found = None
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self._pid:
                    found = status
        return found

    def _obey(self) -> bool:
        """Handles a message. False when the program must be killed: the caller says so, or has gone."""
        try:
            command = json.loads(self._line.recv(MAX_REPORT))
            if command["op"] == "signal":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(os.getpgid(self._pid), command["number"])
                return True
        except (OSError, ValueError):
            pass
        return False

    def _kill(self) -> None:
        if self._holds_signals:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGKILL)
            return
        found = {self._pid, self._session}
        while more := {*all_below(os.getpid()), *in_sessions(found)} - {os.getpid()}:
            found |= more
            for pid in more:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not _any_lives(more):
                return
            time.sleep(_PAUSE)

    def _say(self, report: Command) -> None:
        with suppress(OSError):  # the caller has gone
            self._line.send(json.dumps(report).encode(), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


def attend(start: WorkerStart, descriptors: Sequence[int]) -> None:
    """An attendant's whole life, in a process that the warden has forked for it. descriptors: see above."""
    signal.set_wakeup_fd(-1)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    level = start.level
    rules = () if level.worker_rules < 0 else (level.worker_rules,)
    streams = [descriptors[stream] for stream in STREAMS]
    place([null, null, null, descriptors[LINE], *streams, descriptors[SPEC], *rules])
    level.worker_rules, level.last_pid = _RULES if rules else -1, -1
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # else `/proc` hides it and its descendants from its warden
    spec = ProgramSpec.from_json(os.pread(_SPEC, MAX_SPEC, 0))
    Attendant(start, spec).run()


def _enter_domain(start: WorkerStart) -> bool:
    """Whether signals from here only reach processes started here; the warden is outside, with the same user."""
    start.level.fence_attendant()
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return True
    return False


def _how(status: int) -> Command:
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status), "status": None}
    return {"signal": None, "status": os.WEXITSTATUS(status)}


def _any_lives(pids: set[int]) -> bool:
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                return True
    return False


# -- the program ------------------------------------------------------------------------------------------


def _begin(start: WorkerStart, spec: ProgramSpec) -> tuple[int, int]:
    """Starts the program. Gives its session and its pid: a child of this process. Raises OSError.

    It leads no process group, as under `subprocess`: `setsid` run by a group leader forks, and its caller would see
    only the end of the first process. The first process of its session ends once the program exists. At a terminal,
    and in gVisor, which has no CLONE_PARENT, the program leads the session.
    """
    if spec.terminal or not start.level.forks_siblings:
        pid = libc.bare_fork()
        if pid == 0:
            os.setsid()
            _become(start, spec)
        return pid, pid
    reading, writing = os.pipe2(os.O_CLOEXEC)
    leader = libc.bare_fork()
    if leader == 0:
        _lead(start, spec, writing)
    os.close(writing)
    with open(reading, "rb", buffering=0) as pipe:
        (pid,) = _NUMBER.unpack(pipe.read(_NUMBER.size) or _NUMBER.pack(-errno.EAGAIN))
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return leader, pid


def _lead(start: WorkerStart, spec: ProgramSpec, pipe: int) -> None:
    """Never returns: begins a session and starts the program in it. Writes its pid, or a negative errno."""
    os.setsid()
    try:
        pid = libc.sibling_fork()
    except OSError as error:
        pid = -(error.errno or errno.EAGAIN)
    if pid == 0:
        os.close(pipe)
        _become(start, spec)
    os.write(pipe, _NUMBER.pack(pid))
    os._exit(0)


def _become(start: WorkerStart, spec: ProgramSpec) -> None:
    """Never returns: this process becomes the program."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        start.level.fence_worker()
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        place(_STREAMS)
        if spec.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(0o077)
        os.environ.update(start.environment)
        os.environ.update(spec.env)
        os.chdir(Path(start.settings.workdir) / spec.cwd)
        if spec.files is None:
            os.execvpe(spec.argv[0], list(spec.argv), os.environ)  # noqa: S606  (in the jail)
    except BaseException as error:  # noqa: BLE001  (the last frame of a process)
        _fail(spec, error)
    os._exit(_work_on_files(spec))


def _work_on_files(spec: ProgramSpec) -> int:
    assert spec.files is not None
    try:
        # The fork's inherited objects would write to the zygote's streams.
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        code = carry_out(spec.files)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the caller wants no more of it
        return 0
    except BaseException as error:  # noqa: BLE001  (as above)
        sys.excepthook(type(error), error, error.__traceback__)
        return os.EX_SOFTWARE


def _fail(spec: ProgramSpec, error: BaseException) -> None:
    """Writes to the program's standard error why it could not be started, as a shell does."""
    code = error.errno if isinstance(error, OSError) else None
    name = spec.argv[0] if spec.argv else ""
    about = (
        spec.cwd if isinstance(error, OSError) and error.filename not in (None, name) and spec.cwd else name
    )
    text = f"{about}: {os.strerror(code)}" if code else f"{name}: {type(error).__name__}: {error}"
    with suppress(OSError):
        os.write(2, f"cenote: {text}\n".encode(errors="backslashreplace"))
    os._exit(NOT_FOUND if code in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE)
