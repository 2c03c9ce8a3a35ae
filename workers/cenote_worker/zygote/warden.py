"""Pid 1 of a jail: reaps, forwards interrupts, answers how much the jail uses, ends with the worker.

When it ends, the kernel ends every process of the jail; when the client's end of the control socket closes, it ends.
Messages on the control socket are small JSON objects, one per packet.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cenote_worker.zygote import usage
from cenote_worker.zygote.descriptors import CONTROL

MAX_MESSAGE: Final = 4096
"""Bytes of one message, either way. Nothing that is said here needs more."""

_PROC: Final = "/proc"
_SENDER_GONE: Final = b""


@dataclass(kw_only=True)
class Watch:
    """State of a warden. worker: its pid. oom_kills: the machine's count when the jail started.

    killed: whether it was told to kill the worker.
    """

    worker: int
    control: socket.socket
    oom_kills: int
    killed: bool = False


def heed_signals() -> None:
    """Let SIGCHLD write to the wake-up descriptor, and ignore SIGINT. A zygote's wardens inherit it."""
    signal.signal(signal.SIGCHLD, _do_nothing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def watch(worker: int, oom_kills: int, *, holds_signals: bool) -> None:
    """The warden's whole life. Returns when the worker is dead or the client is gone. See `heed_signals`.

    holds_signals: see Level.
    """
    wakeup, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    state = Watch(worker=worker, control=socket.socket(fileno=CONTROL), oom_kills=oom_kills)
    try:
        _attend(state, wakeup)
    finally:
        _end_the_rest(holds_signals=holds_signals)


def _attend(state: Watch, wakeup: int) -> None:
    poll = select.poll()
    poll.register(CONTROL, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while _reap(state):
        ready = dict(poll.poll())
        if wakeup in ready:
            os.read(wakeup, 512)
        if CONTROL in ready and not _serve(state):
            return


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


def _reap(state: Watch) -> bool:
    """Collect every dead child, adopted ones too. False once the worker was among them."""
    with suppress(ChildProcessError):
        while True:
            pid, status, spent = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return True
            if pid == state.worker:
                _say_exited(state, status, spent.ru_maxrss * 1024)
                return False
    return True


def _say_exited(state: Watch, status: int, max_rss: int) -> None:
    by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    # The kernel tells nobody whom it chose. A SIGKILL that was not ours and a counter that rose: as close as it gets.
    oom = by_signal == signal.SIGKILL and not state.killed and usage.oom_kills(_PROC) > state.oom_kills
    _say(state, {"op": "exited", "signal": by_signal, "status": code, "max_rss": max_rss, "oom": oom})


def _serve(state: Watch) -> bool:
    """Answer one message. False when the client is gone or breaks the protocol."""
    try:
        packet = state.control.recv(MAX_MESSAGE)
    except OSError:
        return False
    if packet == _SENDER_GONE:
        return False
    request = json.loads(packet)
    number = request["id"]
    match request["op"]:
        case "interrupt":
            os.kill(state.worker, signal.SIGINT)
            _say(state, {"op": "interrupted", "id": number})
        case "kill_worker":
            state.killed = True
            os.kill(state.worker, signal.SIGKILL)
        case "status":
            memory, processes = usage.of_jail()
            _say(state, {"op": "status", "id": number, "memory": memory, "processes": processes})
        case _:
            return False
    return True


def _do_nothing(_number: int, _frame: object) -> None:
    """A handler must exist for the wake-up descriptor to be written."""


def _say(state: Watch, message: dict[str, object]) -> None:
    """The client is trusted but may be gone, or slow: a warden never waits for it."""
    with suppress(OSError):
        state.control.send(json.dumps(message).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
