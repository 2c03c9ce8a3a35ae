"""A zygote's start: read the spec, build the walls that all jails share, import, then serve.

Requests wait until the preload is done. The other order, forking with what is imported so far, makes the first
runtimes of a burst slow for their whole life: each imports pandas again, in its own memory. A caller that knows that
a program needs no pandas gives an empty preload, and need not wait.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final, assert_never

from cenote_security.errors import IsolationUnavailableError
from cenote_security.policy import Isolation
from cenote_security.walls.facilities import Facilities, resolve_isolation
from cenote_security.walls.level import Level, LevelName, WallError
from cenote_security.walls.levels.landlock_level import LandlockLevel
from cenote_security.walls.levels.none_level import NoneLevel
from cenote_security.walls.levels.strict_level import StrictLevel
from cenote_security.walls.namespaces import open_host_proc
from cenote_security.walls.trials import attempt, try_essentials
from cenote_worker.process import modules
from cenote_worker.zygote import preload
from cenote_worker.zygote.image_key import image_key
from cenote_worker.zygote.memory_layout_unsafe import (
    CommonHeap,
    CommonLibraries,
    common_file,
    fill_gaps,
    seal_common_file,
)
from cenote_worker.zygote.serve import Zygote, variables_of
from cenote_worker.zygote.spec import MAX_MESSAGE, ZygoteSpec
from cenote_worker.zygote.worker_start import Entry

_PYTHONS_OWN: Final = {signal.SIGPIPE, signal.SIGXFSZ}
"""Python ignores these itself, to raise errors instead."""


@dataclass(kw_only=True, eq=False)
class Broken(Exception):
    """The zygote cannot serve. kind: `isolation`, `preload` or `zygote`; level, missing, remedy for the first."""

    kind: str
    detail: str
    level: str = ""
    missing: tuple[str, ...] = ()
    remedy: str = ""


def run(descriptor: str) -> None:
    """The zygote's whole life. descriptor: the number of its end of the socket to the client."""
    os.umask(0o022)
    _hear_signals()
    client = socket.socket(fileno=int(descriptor))
    client.set_inheritable(False)
    try:
        zygote, hello, common = _prepare(client)
    except Broken as broken:
        _say(client, {"op": "broken", **asdict(broken)})
        return
    except Exception as error:  # a zygote has no terminal to show its error
        _say(client, {"op": "broken", **asdict(Broken(kind="zygote", detail=repr(error)))})
        raise
    _say(client, hello, common)
    for memory in common:
        os.close(memory)  # no jail is to have it
    zygote.run()


def _hear_signals() -> None:
    """Resets what outlives exec: the signal mask, and ignored signals.

    Jails get signals to interrupt cells, and wait for children, which is impossible while SIGCHLD is ignored. Ray
    blocks SIGINT in all that it starts; `nohup` and daemons ignore other signals.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - _PYTHONS_OWN:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _prepare(client: socket.socket) -> tuple[Zygote, dict[str, object], list[int]]:
    """The zygote, what is said when it is ready, and the file that its memory is in, if there is one."""
    spec = ZygoteSpec.from_json(client.recv(MAX_MESSAGE).decode())
    if spec.held >= 0:
        os.set_inheritable(spec.held, False)
    client_life = _watch_client(spec.client)
    host_proc = open_host_proc()
    level = _raise_walls(spec, host_proc)
    preload.use_search_path(spec.search)
    if spec.prefix:
        preload.use_prefix(spec.prefix)
    os.environ.clear()  # the interpreter itself sets LC_CTYPE when it finds none
    os.environ.update(_usual_environment(level))
    # A jail with its own kernel is not a fork of this process: it would share nothing of what is imported here.
    common = [] if level.own_kernel else [common_file()]
    layouts = [(CommonLibraries(host_proc, memory), CommonHeap(memory)) for memory in common]
    preloaded = preload.Preloaded() if level.own_kernel else _preload(spec, host_proc)
    entry = _entry(spec.entry)
    key = _image_key(spec, level, host_proc)
    tempfile.tempdir = None  # found again by each jail, which has its own
    modules.settle()
    preload.settle_memory()
    for libraries, heap in layouts:
        fill_gaps()
        libraries.find()
        heap.settle()
        libraries.settle()
    for memory in common:
        seal_common_file(memory)
    zygote = Zygote(
        level=level,
        entry=entry,
        client=client,
        client_life=client_life,
        host_proc=host_proc,
        lingers=spec.lingers,
    )
    hello: dict[str, object] = {
        "op": "ready",
        "image_key": key,
        "isolation": level.name,
        "preloaded": preloaded.loaded,
        "missing": preloaded.missing,
        "base_memory": zygote.base_memory,
        "own_tasks": level.own_tasks,
        "tasks_each": level.tasks_each,
    }
    return zygote, hello, common


def _usual_environment(level: Level) -> dict[str, str]:
    """The variables of most jails; set once here, they cost jails nothing. One CPU: no library may start threads."""
    return variables_of(level.home(0), 1, {})


def _watch_client(pid: int) -> int:
    """A pidfd of the client. Its socket alone is not enough: a fork of the client holds that open, too."""
    life = os.pidfd_open(pid)
    if os.getppid() != pid:
        sys.exit("the client ended before its zygote started")
    return life


def _raise_walls(spec: ZygoteSpec, host_proc: int) -> Level:
    try:
        level = _level(resolve_isolation(spec.isolation, _tried(spec.isolation, host_proc)), host_proc)
        level.prepare(spec.visible, spec.mounts)
    except IsolationUnavailableError as error:
        raise Broken(
            kind="isolation", detail=str(error), level=error.level, missing=error.missing, remedy=error.remedy
        ) from error
    except WallError as error:
        raise Broken(
            kind="isolation",
            detail=str(error),
            level=spec.isolation,
            missing=(str(error),),
            remedy="Run `cenote doctor` to see what this machine has.",
        ) from error
    return level


def _tried(asked: Isolation, host_proc: int) -> Facilities:
    essential = try_essentials(host_proc)
    if asked != "gvisor":
        return essential
    from cenote_security.walls.levels import (
        runsc_unsafe,  # and with it subprocess, which no other zygote needs
    )

    return Facilities(found=(*essential.found, attempt("runsc", runsc_unsafe.describe, runsc_unsafe.REMEDY)))


def _level(name: LevelName, host_proc: int) -> Level:
    match name:
        case "strict":
            return StrictLevel(host_proc)
        case "landlock":
            return LandlockLevel(host_proc)
        case "gvisor":
            from cenote_security.walls.levels import gvisor_level, runsc_unsafe

            return gvisor_level.GvisorLevel(host_proc, runsc_unsafe.find())
        case "none":
            return NoneLevel(host_proc)
        case _:
            assert_never(name)


def _preload(spec: ZygoteSpec, host_proc: int) -> preload.Preloaded:
    try:
        result = preload.preload(spec.preload, host_proc)
    except Exception as error:  # a module may raise anything at import
        raise Broken(kind="preload", detail=f"importing it raised {type(error).__name__}: {error}") from error
    if result.threaded:
        raise Broken(
            kind="preload",
            detail=f"{result.threaded} starts a thread when it is imported, and a process with threads cannot be "
            f"forked safely; leave it out of preload, cells can still import it",
        )
    return result


def _image_key(spec: ZygoteSpec, level: Level, host_proc: int) -> str:
    """Empty where jails can become no images, or where it cannot be known."""
    from cenote_worker.jail.state import (
        image_unsafe,
    )  # loaded with the entry, at the place that it has in jails

    if level.name != "strict" or not image_unsafe.LIBRARY.exists():
        return ""
    try:
        return image_key(spec, level.name, host_proc, image_unsafe.LIBRARY)
    except (OSError, ValueError):  # another C library may not know its version by that name
        return ""


def _entry(module: str) -> Entry:
    try:
        entry: Entry = importlib.import_module(module).main
    except Exception as error:
        raise Broken(kind="zygote", detail=f"{module} cannot be imported: {error!r}") from error
    return entry


def _say(client: socket.socket, message: dict[str, object], descriptors: Sequence[int] = ()) -> None:
    with suppress(OSError):
        socket.send_fds(client, [json.dumps(message).encode()], descriptors)
