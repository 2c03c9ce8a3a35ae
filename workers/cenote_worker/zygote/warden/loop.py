"""Pid 1 of a jail: reaps, forwards interrupts, answers how much the jail uses, keeps copies of the worker.

When the worker dies, the newest of its copies goes on in its place; without one the jail ends with the worker. An
idle worker may be ended until it is needed again, see `worker.py`. When the warden ends, the kernel ends every
process of the jail; when the client's end of the control socket closes, the warden ends. Messages on the control
socket are small JSON objects, one per packet.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from cenote_worker.jail.snapshots.protocol import BEGINNING, FORGONE, MAX_LABEL, Message, number, receive
from cenote_worker.zygote import processes as usage
from cenote_worker.zygote.descriptors import CONTROL, LINE, PULSE
from cenote_worker.zygote.processes import end_unattended, end_younger, start_time_at
from cenote_worker.zygote.warden.programs import COUNT, Attend, AttendedPrograms, Cause
from cenote_worker.zygote.warden.snapshot_cost_monitor import SnapshotCostMonitor
from cenote_worker.zygote.warden.snapshot_store import SnapshotStore, is_child
from cenote_worker.zygote.warden.worker import (
    AT_ONCE,
    NOBODY,
    WardenState,
    WorkerNumber,
    call,
    come,
    leave,
    left,
    revive,
    stay,
    tell_client,
    wake,
)
from cenote_worker.zygote.worker_start import BeginAgain

MAX_MESSAGE: Final = 131_072
"""Bytes of one message, in either direction. A list of snapshots with labels is the longest."""

_SENDER_GONE: Final = b""

_MOST_TRIES: Final = 3
"""Workers tried per copy: one may die of the request sent to its predecessor, with nothing wrong in the copy."""

_LEISURE: Final = 10
"""Milliseconds for which a worker's messages may wait where no copy of it is kept: a state is then a few names that
it has bound, which matter only when it has died or the client asks, and all messages are read before either.
Otherwise each of many cells back to back would wake the warden. A worker that waits for the warden wakes it.
"""

_MESSAGES_PER_TURN: Final = 64
"""Messages read from the worker's socket per turn: a worker that floods it does not keep others waiting."""


def heed_signals() -> None:
    """Lets SIGCHLD write to the wake-up descriptor, and ignores SIGINT. A zygote's wardens inherit this."""
    signal.signal(signal.SIGCHLD, _do_nothing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_warden(
    worker: int,
    oom_kills: int,
    *,
    holds_signals: bool,
    most_copies: int,
    attend: Attend,
    last_pid: int = -1,
) -> BeginAgain | None:
    """The warden's whole life. Returns when the worker is dead or the client is gone. See `heed_signals`.

    Also returns in each process forked to begin where the worker began, with its instructions. holds_signals,
    last_pid: see Level. most_copies: copies of the worker to keep. attend: the role of a process that runs a program.
    """
    wakeup, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    state = WardenState(
        worker=worker,
        control=socket.socket(fileno=CONTROL),
        line=socket.socket(fileno=LINE),
        store=SnapshotStore(most_copies),
        oom_kills=oom_kills,
        pulse=SnapshotCostMonitor(),
        number=WorkerNumber(worker, last_pid),
        programs=AttendedPrograms(attend),
    )
    try:
        _attend(state, wakeup)
    except BeginAgain as again:
        return again.with_traceback(None)
    except BaseException:
        _end_the_rest(holds_signals=holds_signals)
        raise
    _end_the_rest(holds_signals=holds_signals)
    return None


def _attend(state: WardenState, wakeup: int) -> None:
    poll = select.poll()
    for descriptor in (CONTROL, LINE, PULSE, wakeup):
        poll.register(descriptor, select.POLLIN)
    patience: int | None = None
    while _reap(state):
        ready = dict(poll.poll(patience))
        if wakeup in ready:
            os.read(wakeup, 512)
        # First: the client may have said which states must stay before a copy was made.
        if not _serve_all(state):
            return
        told = state.told
        if (
            LINE in ready or PULSE in ready
        ):  # a pulse is of a cell after these messages: see `SnapshotCostMonitor.copied`
            _listen(state, _MESSAGES_PER_TURN)
        if PULSE in ready:
            _weigh(state)
        pauses = {
            LINE: _LEISURE if LINE in ready and _is_at_leisure(state, told) else 0,
            PULSE: int(state.pulse.pause * 1000) if PULSE in ready else 0,
        }
        for descriptor, milliseconds in pauses.items():
            poll.modify(descriptor, 0 if milliseconds else select.POLLIN)
        patience = min(filter(None, pauses.values()), default=None)


def _is_at_leisure(state: WardenState, told: Message) -> bool:
    """Whether the worker's next messages may wait. told: the file versions reported to it before its last message:
    where these change with each cell, it must learn which of them may be dropped.
    """
    return state.store.is_at_beginning and state.told is told


def _end_the_rest(*, holds_signals: bool) -> None:
    """Kills what is left of the jail. As pid 1 it does nothing: the kernel kills the rest when this process ends."""
    if os.getpid() == 1:
        return
    if holds_signals:
        # The kernel signals all processes at once: none escapes by forking meanwhile, as it could from a list.
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    while left := usage.descendants(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


# -- the worker and its copies ----------------------------------------------------------------------------


def _reap(state: WardenState) -> bool:
    """Reaps every dead child, adopted ones too. False if the worker was among them, and cannot be replaced."""
    with suppress(ChildProcessError):
        while True:
            pid, status, spent = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return True
            if pid in state.programs.attendants:
                _end_program(state, pid, status)
                continue
            if pid != state.worker:
                _part_with(state, pid)
                continue
            state.cpu += int((spent.ru_utime + spent.ru_stime) * 1e6)
            if state.suspension.expects_end and not state.killed:
                left(state)
            elif not _succeed(state, _ending(state, status, spent.ru_maxrss * 1024)):
                return False
    return True


def _listen(state: WardenState, most: int) -> None:
    """Reads the worker's messages about its copies. They may be anything: invalid ones are ignored."""
    for _ in range(most):
        try:
            heard = receive(state.line, AT_ONCE)
            if heard is None:
                return
            if heard.attached is not None:
                _take(state, heard.message, heard.attached)
            else:
                _note(state, heard.message)
        except BlockingIOError:
            return
        except (ValueError, OSError):
            continue


def _take(state: WardenState, message: Message, attached: socket.socket) -> None:
    """Handles a message that comes with a socket. Raises ValueError, OSError."""
    match message.get("op"):
        case "forgo":
            _forgo(state, attached)
        case "lend":
            state.store.lend(number(message, "step"), attached)
        case _:
            pid, step, files = (number(message, key) for key in ("pid", "step", "files"))
            state.store.add(pid, step, files, attached)
            _copied(state)


def _note(state: WardenState, message: Message) -> None:
    """Handles a message without a socket. Raises ValueError, OSError."""
    match message.get("op"):
        case "copy":
            pid, step, files = (number(message, key) for key in ("pid", "step", "files"))
            if pid != BEGINNING or not state.store.add_beginning(state.worker, step, files):
                _tell_gone(state, pid)
                return
            _copied(state)
        case "bound":
            _keep_bound(state, message)
        case "alive":
            state.alive = True
            come(state)
        case "served":
            state.tries = 0
        case _:
            state.store.name(number(message, "step"), str(message.get("label"))[:MAX_LABEL])


def _copied(state: WardenState) -> None:
    _tell_of_files(state)
    if not state.store.is_at_beginning:  # otherwise its next cell shares nothing with a copy
        state.pulse.copied(state.worker)


def _keep_bound(state: WardenState, message: Message) -> None:
    """Saves a state that is described by the names bound since the latest copy. Raises ValueError, OSError."""
    copy, step, at, files = (number(message, key) for key in ("copy", "step", "at", "files"))
    bindings = message.get("bindings")
    if not isinstance(bindings, str) or not state.store.bind(copy, step, start_time_at(at), files, bindings):
        _tell_gone(state, copy)
        return
    _copied(state)


def _part_with(state: WardenState, pid: int) -> None:
    """Handles the end of a child, which may have been a copy."""
    ours = pid in state.store.pids
    state.store.forget(pid)
    if ours:
        _tell_gone(state, pid)


def _tell_gone(state: WardenState, copy: int, given_up: Sequence[int] = ()) -> None:
    """Tells the worker that later states cannot be described by bindings to this copy: it must make another copy.

    given_up: steps whose states went with it, since the cell paid too much for them.
    """
    with suppress(OSError):  # then it is told at its next message about that copy
        _tell(state, {"gone": copy, "given_up": list(given_up)})


def _tell(state: WardenState, message: Message) -> None:
    state.line.send(json.dumps(message).encode(), AT_ONCE)


def _tell_of_files(state: WardenState) -> None:
    """Tells the worker which file versions are wanted, if changed: reading this costs as much as 100 copied pages."""
    if state.told != (told := state.store.files):
        _tell(state, told)
        state.told = told


def _weigh(state: WardenState) -> None:
    """Gives the copies up when they cost the running cell too much: each page that it writes to is copied."""
    copy = state.store.spare_copy
    if not state.pulse.beat(state.worker, shares=copy is not None) or copy is None:
        return
    with _standing_still(state.worker):
        if not state.pulse.is_too_much(state.worker, copy.pid):
            return
        _tell_gone(state, copy.pid, state.store.forgo())
    tell_client(state, {"op": "dropped"})


@contextmanager
def _standing_still(worker: int) -> Iterator[None]:
    """Stops the worker: it would pay on meanwhile, and take processor time from the copies that end."""
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def _forgo(state: WardenState, asking: socket.socket) -> None:
    """Gives the copies up at the worker's request, before a cell that is known to pay too much."""
    with asking, suppress(OSError):
        copy = state.store.spare_copy
        if copy is not None and (given_up := state.store.forgo()):
            _tell_gone(state, copy.pid, given_up)
            asking.send(FORGONE, AT_ONCE)


def _succeed(state: WardenState, ending: Message) -> bool:
    """Lets a copy replace a dead worker. False when there is none, which the client is told."""
    _listen(state, _MESSAGES_PER_TURN)
    wanted, state.wanted = state.wanted, None
    if wanted is not None:  # then it was killed, however young it was
        state.store.base = wanted[1]
    elif (not state.alive or state.tries >= _MOST_TRIES) and state.store.base is not None:
        state.store.drop(state.store.base)  # its workers die at once, or at any request
        state.tries = 0
    while (kept := state.store.base) is not None:
        older = state.programs.older(kept.born)
        if end_younger(kept.born, state.store.pids, older) and (pid := wake(state, kept)) is not None:
            revive(state, kept, pid)
            _end_programs(state, "worker" if wanted is None else "rollback")
            told = {"op": "revived", **ending} if wanted is None else {"op": "rolled_back", "id": wanted[0]}
            tell_client(state, {**told, "step": kept.step, "pid": pid})
            stay(state)
            come(state)
            return True
        state.store.give_up(kept.copy)
    tell_client(state, {"op": "exited", **ending})
    return False


def _ending(state: WardenState, status: int, max_rss: int) -> Message:
    by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    # The kernel does not report its victim. A SIGKILL that was not ours and a risen counter are the best evidence.
    oom = by_signal == signal.SIGKILL and not state.killed and usage.oom_kills() > state.oom_kills
    return {"signal": by_signal, "status": code, "max_rss": max_rss, "oom": oom}


# -- the client -------------------------------------------------------------------------------------------


def _serve_all(state: WardenState) -> bool:
    """Answers all waiting messages. False when the client is gone or breaks the protocol."""
    while select.select((state.control,), (), (), 0)[0]:
        if not _serve(state):
            return False
    return True


def _serve(state: WardenState) -> bool:
    """Answers one message. False when the client is gone or breaks the protocol."""
    try:
        packet, descriptors, _, _ = socket.recv_fds(state.control, MAX_MESSAGE, COUNT)
    except OSError:
        return False
    if packet == _SENDER_GONE:
        return False
    request = json.loads(packet)
    asked = request["id"]
    if request["op"] == "begin":
        _begin_program(state, asked, descriptors)
        return True
    match request["op"]:
        case "interrupt":
            if state.worker != NOBODY:
                os.kill(state.worker, signal.SIGINT)
            tell_client(state, {"op": "interrupted", "id": asked})
        case "end_program":
            state.programs.end(request["program"])
        case "kill_worker":
            return _kill_worker(state)
        case "park":
            _listen(state, _MESSAGES_PER_TURN)
            leave(state, asked, request["step"])
        case "unpark":
            call(state, asked)
        case "hold":
            state.store.hold(request["targets"])
        case "relieve":
            _listen(state, _MESSAGES_PER_TURN)
            state.store.keep_base()
        case "thin":
            _listen(state, _MESSAGES_PER_TURN)
            state.store.thin()
        case "rollback":
            return _roll_back(state, asked, request)
        case "snapshots":
            _listen(state, _MESSAGES_PER_TURN)
            tell_client(state, {"op": "snapshots", "id": asked, "kept": state.store.told()})
        case "status":
            _listen(state, _MESSAGES_PER_TURN)  # copies do not count as processes
            memory, processes = usage.jail_usage(state.store.pids)
            processes += state.worker == NOBODY  # a suspended worker counts, too
            tell_client(state, {"op": "status", "id": asked, "memory": memory, "processes": processes})
        case _:
            return False
    return True


def _begin_program(state: WardenState, asked: int, descriptors: list[int]) -> None:
    code = state.programs.begin(asked, descriptors)
    if code:
        tell_client(state, {"op": "not_begun", "id": asked, "code": code})


def _end_program(state: WardenState, pid: int, status: int) -> None:
    """Handles the end of an attendant. If it was killed, its program has no attendant any more, and is ended."""
    number, born = state.programs.forget(pid)
    if status == 0:
        return
    _listen(state, _MESSAGES_PER_TURN)  # of copies, which the warden looks after
    end_unattended(born, {state.worker, *state.store.pids, *state.programs.attendants})
    tell_client(state, {"op": "unattended", "id": number, "cause": ""})


def _end_programs(state: WardenState, cause: Cause) -> None:
    """Tells the client which programs were ended because they were younger than the worker's new state."""
    for pid in tuple(state.programs.attendants):
        if not is_child(pid):
            number, _ = state.programs.forget(pid)
            tell_client(state, {"op": "unattended", "id": number, "cause": cause})


def _roll_back(state: WardenState, asked: int, request: Message) -> bool:
    """Rolls back. False when nothing can replace the worker, which the client is told."""
    _listen(state, _MESSAGES_PER_TURN)
    label, step = request.get("label"), request.get("step")
    kept = state.store.labelled(str(label)) if label else state.store.find(int(str(step)))
    if kept is None:
        tell_client(state, {"op": "not_kept", "id": asked})
        return True
    state.wanted = asked, kept
    return _kill_worker(state)


def _kill_worker(state: WardenState) -> bool:
    """Kills the worker; another one replaces it when it has died, or at once if there is none. False if none can."""
    if state.worker == NOBODY:
        return _succeed(state, {"signal": int(signal.SIGKILL), "status": None, "max_rss": 0, "oom": False})
    state.killed = True
    os.kill(state.worker, signal.SIGKILL)
    return True


def _do_nothing(_number: int, _frame: object) -> None:
    """A handler must exist for the wake-up descriptor to be written."""
