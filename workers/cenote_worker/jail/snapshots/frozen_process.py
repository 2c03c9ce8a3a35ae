"""A frozen copy of a worker: a process that waits, and from which other processes are forked that continue from
there.

The copy is a child of the warden, not of the worker, so a cell that waits for its own children never sees it. It has
one thread, as the worker had when it was copied.

The kernel counts processor time separately for each process, and a copy begins with none: for a program that has
stored an earlier reading, time would have gone back. So in a process that continues, the functions that read it add
the time of the processes before. They are put into their modules only then, and into names that were bound to the
original ones.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from cenote_security.walls.kernel import libc_unsafe as libc
from cenote_worker.jail.forking.frozen_copy import live_briefly
from cenote_worker.jail.forking.threads_unsafe import fork_from_threads
from cenote_worker.jail.process.proc_info import is_single_threaded
from cenote_worker.jail.process.process_names import become_frozen, run_as
from cenote_worker.jail.snapshots.protocol import Message, receive, send
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


def fork_beside() -> int | None:
    """The pid of a copy of this process, a child of the warden; None in the copy.

    Threads of libraries that survive a fork do so by handlers of the C library's own fork, which makes a child of
    this process. So there is an intermediate process, which ends at once and leaves its child to the warden.
    """
    if is_single_threaded():
        return libc.sibling_fork() or None
    here, there = os.pipe2(os.O_CLOEXEC)
    between = fork_from_threads()
    if between == 0:
        copy = libc.bare_fork()
        if copy == 0:
            os.close(here)
            os.close(there)
            return None
        os.write(there, str(copy).encode())
        os._exit(0)
    os.close(there)
    os.waitpid(between, 0)
    pid = int(os.read(here, 20) or b"0")
    os.close(here)
    if pid == 0:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return pid


def freeze(
    warden: socket.socket,
    go_on: Callable[[Message], None],
    answer: Callable[[socket.socket], None],
) -> None:
    """The copy's life. Returns in a process that is to be the worker, forked from the copy at the warden's request.

    warden: the copy's own socket to it. The copy ends when its other end is closed. go_on: called first in each fork
    of the copy, with the warden's message: the fork may be wanted for a later state. answer: called in forks that are
    lent to the worker, with their socket to it.
    """
    with suppress(OSError, ValueError):
        runs_as = become_frozen()
        # The worker's pid cannot be reused while it is the id of a session or a process group.
        os.setsid()
        # Nothing else before this: pages that a copy writes to are copied once more, and most copies never get a
        # message.
        warden.recv(1, socket.MSG_PEEK)
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        while (heard := receive(warden)) is not None:
            if heard.attached is not None:
                _lend(heard.attached, partial(go_on, heard.message), answer, runs_as)
            elif _becomes_worker(warden):
                run_as(runs_as)
                warden.close()
                go_on(heard.message)
                return
    os._exit(0)


def _lend(
    line: socket.socket, go_on: Callable[[], None], answer: Callable[[socket.socket], None], runs_as: bytes
) -> None:
    """If there is no fork, or it cannot continue, the worker sees the end of the socket."""

    def work() -> None:
        run_as(runs_as)
        go_on()
        answer(line)

    with line, suppress(OSError):
        if libc.sibling_fork() == 0:
            live_briefly(work)


def _becomes_worker(warden: socket.socket) -> bool:
    """True in the process that is the worker now: a fork of this one, or this one if it cannot fork."""
    try:
        pid = libc.sibling_fork()
    except OSError:
        send(warden, {"pid": os.getpid()})
        return True
    if pid == 0:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()  # as the worker was
        return True
    send(warden, {"pid": pid})
    return False


_SPENT = "_spent_before"
"""Nanoseconds, among the globals of the functions: a closure would change their code."""

_ASKS = "_as_the_kernel_has_it"


def go_on(microseconds: int, namespace: dict[str, object]) -> None:
    """Adds the processor time of the processes before this one, which the kernel does not count here."""
    for module, functions in _FUNCTIONS.items():
        for name, function in functions.items():
            _put(module, name, function, namespace)
        vars(module)[_SPENT] = microseconds * 1_000


def _put(module: ModuleType, name: str, function: FunctionType, namespace: dict[str, object]) -> None:
    table = vars(module)
    former = table.get(name)
    if former is None or getattr(former, "__code__", None) is function.__code__:
        return
    table[f"{_ASKS}_{name}"] = former
    # With its module's globals, by which the function itself, programs, pickle and the tracker identify it.
    made = FunctionType(function.__code__, table, name, function.__defaults__)
    made.__module__, made.__qualname__, made.__doc__ = module.__name__, name, getattr(former, "__doc__", None)
    table[name] = made
    for key in [key for key, value in namespace.items() if value is former]:
        namespace[key] = made


# The globals of these are those of the modules that they are put into.


def _process_time() -> float:
    return _as_the_kernel_has_it_process_time() + _spent_before / 1e9  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _process_time_ns() -> int:
    return _as_the_kernel_has_it_process_time_ns() + _spent_before  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _thread_time() -> float:
    return _as_the_kernel_has_it_thread_time() + _spent_before / 1e9  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _thread_time_ns() -> int:
    return _as_the_kernel_has_it_thread_time_ns() + _spent_before  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _clock_gettime(clk_id: int) -> float:
    found = _as_the_kernel_has_it_clock_gettime(clk_id)  # type: ignore[name-defined]  # noqa: F821
    mine = clk_id in (CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID)  # type: ignore[name-defined]  # noqa: F821
    return found + _spent_before / 1e9 if mine else found  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _clock_gettime_ns(clk_id: int) -> int:
    found = _as_the_kernel_has_it_clock_gettime_ns(clk_id)  # type: ignore[name-defined]  # noqa: F821
    mine = clk_id in (CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID)  # type: ignore[name-defined]  # noqa: F821
    return found + _spent_before if mine else found  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _times() -> Any:
    found = _as_the_kernel_has_it_times()  # type: ignore[name-defined]  # noqa: F821
    return type(found)((found.user + _spent_before / 1e9, *found[1:]))  # type: ignore[name-defined]  # noqa: F821


def _getrusage(who: int) -> Any:
    found = _as_the_kernel_has_it_getrusage(who)  # type: ignore[name-defined]  # noqa: F821
    mine = who in (RUSAGE_SELF, RUSAGE_THREAD)  # type: ignore[name-defined]  # noqa: F821
    return type(found)((found.ru_utime + _spent_before / 1e9, *found[1:])) if mine else found  # type: ignore[name-defined]  # noqa: F821


def _functions(*functions: Callable[..., Any]) -> dict[str, FunctionType]:
    return {each.__name__.removeprefix("_"): each for each in functions if isinstance(each, FunctionType)}


_FUNCTIONS: Mapping[ModuleType, Mapping[str, FunctionType]] = {
    time: _functions(
        _process_time, _process_time_ns, _thread_time, _thread_time_ns, _clock_gettime, _clock_gettime_ns
    ),
    os: _functions(_times),
    resource: _functions(_getrusage),
}
