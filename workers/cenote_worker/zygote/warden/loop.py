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
from collections.abc import Iterator
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

MAX_MESSAGE: Final = 16_384
"""Bytes of one message, either way. A list of snapshots with labels is the longest."""

_SENDER_GONE: Final = b""

_MOST_TRIES: Final = 3
"""One may die of the request that was meant for the worker before it, and nothing be wrong with the copy."""

_LEISURE: Final = 10
"""Milliseconds for which what the worker says waits where no copy of it is kept: then a state is a few names that it
has bound, which matters when it has died or the client asks, and before either all is heard. Else each of many cells
back to back would wake the warden. A worker that waits for it rings.
"""

_MESSAGES_PER_TURN: Final = 64
"""Of the worker's line: one that floods it keeps nobody else waiting."""


def heed_signals() -> None:
    """Let SIGCHLD write to the wake-up descriptor, and ignore SIGINT. A zygote's wardens inherit it."""
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

    And in each process that is forked to begin where the worker began, with what that is told. holds_signals: see
    Level, as last_pid. most_copies: of the worker that are kept. attend: what a process does that begins a program.
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
        # First: a copy may have been made after the client has said which others are to stay all the same.
        if not _serve_all(state):
            return
        told = state.told
        if (
            LINE in ready or PULSE in ready
        ):  # a pulse is of a cell behind what was said: see `SnapshotCostMonitor.copied`
            _listen(state, _MESSAGES_PER_TURN)
        if PULSE in ready:
            _weigh(state)
        patience = _LEISURE if LINE in ready and _is_at_leisure(state, told) else None
        poll.modify(LINE, 0 if patience else select.POLLIN)


def _is_at_leisure(state: WardenState, told: Message) -> bool:
    """Whether what the worker says next may wait. told: of files, before it said the latest: where these change with
    each cell, it has to hear which of them may go.
    """
    return state.store.is_at_beginning and state.told is told


def _end_the_rest(*, holds_signals: bool) -> None:
    """Kill what is left of the jail. As pid 1 there is nothing to do: the kernel does it when this process ends."""
    if os.getpid() == 1:
        return
    if holds_signals:
        # The kernel looks at all processes at once: nothing gets away by forking meanwhile, as it may from a list.
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
    """Collect every dead child, adopted ones too. False once the worker was among them, and nothing can follow it."""
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
    """Take what the worker says of its copies. It may be anything: what makes no sense is passed over."""
    for _ in range(most):
        try:
            heard = receive(state.line, socket.MSG_DONTWAIT)
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
    """What comes with a line of its own. Raises ValueError, OSError."""
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
    """Raises ValueError, OSError."""
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
    if not state.store.is_at_beginning:  # else its next cell shares nothing with a copy
        state.pulse.copied(state.worker)


def _keep_bound(state: WardenState, message: Message) -> None:
    """A state that is told by what was bound since the latest copy. Raises ValueError, OSError."""
    copy, step, at, files = (number(message, key) for key in ("copy", "step", "at", "files"))
    bindings = message.get("bindings")
    if not isinstance(bindings, str) or not state.store.bind(copy, step, start_time_at(at), files, bindings):
        _tell_gone(state, copy)
        return
    _copied(state)


def _part_with(state: WardenState, pid: int) -> None:
    """A child has ended, which may have been a copy."""
    ours = pid in state.store.pids
    state.store.forget(pid)
    if ours:
        _tell_gone(state, pid)


def _tell_gone(state: WardenState, copy: int) -> None:
    """States behind it cannot be told by bindings any more: another copy must be made."""
    with suppress(OSError):  # then it is told when it speaks of that copy again
        _tell(state, {"gone": copy})


def _tell(state: WardenState, message: Message) -> None:
    state.line.send(json.dumps(message).encode(), AT_ONCE)


def _tell_of_files(state: WardenState) -> None:
    """Unless the worker knows: reading it costs each cell what it does to make one more copy of a hundred pages."""
    if state.told != (told := state.store.files):
        _tell(state, told)
        state.told = told


def _weigh(state: WardenState) -> None:
    """Give the copies up when the running cell pays too much for them: each page that it writes to is copied."""
    copy = state.store.spare_copy
    if not state.pulse.beat(state.worker, shares=copy is not None) or copy is None:
        return
    with _standing_still(state.worker):
        if not state.pulse.is_too_much(state.worker, copy.pid):
            return
        state.store.forgo()
    tell_client(state, {"op": "dropped"})
    _tell_gone(state, copy.pid)


@contextmanager
def _standing_still(worker: int) -> Iterator[None]:
    """It would go on paying meanwhile, and keep the copies that end from the processor of a busy machine."""
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def _forgo(state: WardenState, asking: socket.socket) -> None:
    """Before a cell that would pay too much, if whoever runs it knows that."""
    with asking, suppress(OSError):
        if state.store.forgo():
            asking.send(FORGONE, AT_ONCE)


def _succeed(state: WardenState, ending: Message) -> bool:
    """Let a copy go on in the place of a dead worker. False when there is none, which the client is told."""
    _listen(state, _MESSAGES_PER_TURN)
    wanted, state.wanted = state.wanted, None
    if wanted is not None:  # then it was killed, however young it was
        state.store.base = wanted[1]
    elif (not state.alive or state.tries >= _MOST_TRIES) and state.store.base is not None:
        state.store.drop(state.store.base)  # what comes of it dies at once, or of whatever it is asked
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
    # The kernel tells nobody whom it chose. A SIGKILL that was not ours and a counter that rose: as close as it gets.
    oom = by_signal == signal.SIGKILL and not state.killed and usage.oom_kills() > state.oom_kills
    return {"signal": by_signal, "status": code, "max_rss": max_rss, "oom": oom}


# -- the client -------------------------------------------------------------------------------------------


def _serve_all(state: WardenState) -> bool:
    """Answer what has come. False when the client is gone or breaks the protocol."""
    while select.select((state.control,), (), (), 0)[0]:
        if not _serve(state):
            return False
    return True


def _serve(state: WardenState) -> bool:
    """Answer one message. False when the client is gone or breaks the protocol."""
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
            _listen(state, _MESSAGES_PER_TURN)  # copies are no processes
            memory, processes = usage.jail_usage(state.store.pids)
            processes += state.worker == NOBODY  # it is there as soon as anybody looks for it
            tell_client(state, {"op": "status", "id": asked, "memory": memory, "processes": processes})
        case _:
            return False
    return True


def _begin_program(state: WardenState, asked: int, descriptors: list[int]) -> None:
    code = state.programs.begin(asked, descriptors)
    if code:
        tell_client(state, {"op": "not_begun", "id": asked, "code": code})


def _end_program(state: WardenState, pid: int, status: int) -> None:
    """An attendant has ended. One that was killed has left its program alone: what has no attendant then ends."""
    number, born = state.programs.forget(pid)
    if status == 0:
        return
    _listen(state, _MESSAGES_PER_TURN)  # of copies, which the warden looks after
    end_unattended(born, {state.worker, *state.store.pids, *state.programs.attendants})
    tell_client(state, {"op": "unattended", "id": number, "cause": ""})


def _end_programs(state: WardenState, cause: Cause) -> None:
    """Those that were younger than the state that the worker goes on from have ended with all else that was."""
    for pid in tuple(state.programs.attendants):
        if not is_child(pid):
            number, _ = state.programs.forget(pid)
            tell_client(state, {"op": "unattended", "id": number, "cause": cause})


def _roll_back(state: WardenState, asked: int, request: Message) -> bool:
    """False when nothing can follow the worker, which the client is told."""
    _listen(state, _MESSAGES_PER_TURN)
    label, step = request.get("label"), request.get("step")
    kept = state.store.labelled(str(label)) if label else state.store.find(int(str(step)))
    if kept is None:
        tell_client(state, {"op": "not_kept", "id": asked})
        return True
    state.wanted = asked, kept
    return _kill_worker(state)


def _kill_worker(state: WardenState) -> bool:
    """Another one takes its place once it has died; at once where none is there. False when none can."""
    if state.worker == NOBODY:
        return _succeed(state, {"signal": int(signal.SIGKILL), "status": None, "max_rss": 0, "oom": False})
    state.killed = True
    os.kill(state.worker, signal.SIGKILL)
    return True


def _do_nothing(_number: int, _frame: object) -> None:
    """A handler must exist for the wake-up descriptor to be written."""
