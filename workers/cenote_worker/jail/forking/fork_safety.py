"""Whether this process may be forked now, so that the copy is one that computes.

In a copy only the thread that forked is left. Each library was tried, in the copy, in a copy of the copy, and in the
process that goes on; `tests/behaviour/forksafe/test_fork_safety.py` tries them again:

| threads of | after a fork | so |
|---|---|---|
| OpenBLAS (numpy, scipy) | works: it ends its threads before a fork and starts them again | safe |
| GNU OpenMP (scikit-learn, PyTorch's kernels) | the copy hangs in its next parallel region | paused |
| Arrow | works: its pools are made anew in the copy | safe while they wait |
| jemalloc's own thread | works: started again in the copy | safe |
| Polars (rayon, tokio) | the copy hangs in its next query | no copy |
| DuckDB | the copy computes on one thread, and crashes when the connection is closed | ended, where in memory |
| Numba's own (`workqueue`) | works: they are begun again in the copy | safe |
| Numba over GNU OpenMP | it ends itself in its next parallel loop | no copy |
| OpenCV | works, on one thread | paused |
| JAX | the copy hangs in its next computation | no copy |
| PyTorch between operations | gone in the copy; what waits for them waits for ever | no copy |
| tqdm, Zarr (threads of Python code that wait) | gone in the copy | ended |
| pools of Python threads and processes that wait (executors, `n_jobs`) | gone in the copy | made anew there |
| tokenizers | works, on one thread | safe |
| Python (`threading`, pools with work) | gone in the copy; a pool's tasks wait for ever | no copy |
| anything else | unknown | no copy |
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from cenote_worker.jail.forking import python_threads
from cenote_worker.jail.forking.python_threads import NONE, IdlePools, is_of_a_library
from cenote_worker.jail.forking.threads_unsafe import pause_native_pools
from cenote_worker.jail.libraries.duckdb_threads import THREADS
from cenote_worker.jail.process import proc_info
from cenote_worker.jail.process.proc_info import MemoryMap, NativeThread
from cenote_worker.jail.tracking.process_state.event_loop_state import OWN
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_LOOKS = 10
_MOST_LOOKS = 2 * _LOOKS
_PAUSE = 0.0005
"""Seconds between two looks at threads that finish their work after the cell, until they are seen waiting. The number
of looks is limited, not the time: when the threads wait for a processor, so does this one."""

_SURVIVORS = ("openblas", "libarrow", "workqueue", "tokenizers")
"""Parts of names of libraries whose own fork handlers were seen to work."""

_SURVIVING_NAME = "jemalloc_bg_thd"
"""jemalloc is linked into other libraries, so only the thread's name identifies it."""

_LIBRARIES = {
    "polars": "Polars",
    "duckdb": "DuckDB",
    "torch": "PyTorch",
    "omp": "OpenMP",
    "libpython": "Python",
    "libc10": "PyTorch",
    "jax": "JAX",
}

_LASTING: Final = frozenset(("polars", "jax"))
"""Libraries whose threads stay from their first use on, and prevent a copy."""

_modules = sys.modules
_alive: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
_current_frames, _enumerate = sys._current_frames, threading.enumerate
_main = threading.main_thread()
_sleep = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkObstacle:
    """What prevents a fork. owner: the usual name of the library, or the name of a Python thread. kind `library`: one
    that ends a copy, whose threads are not counted."""

    kind: Literal["python", "native", "library"]
    owner: str
    threads: int

    def __str__(self) -> str:
        if self.kind == "library":
            return self.owner
        if self.kind == "python":
            return f"a thread of Python code is running: {self.owner}"
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'} of {self.owner}"


class ForkSafety:
    """The threads of one process. A thread whose library is known is not looked at again while it lives."""

    def __init__(self) -> None:
        self._seen: dict[int, NativeThread] = {}
        self._told: frozenset[int | str] = frozenset()
        self.idle = NONE
        """Pools whose threads a copy will lack, according to the last look."""

    def make_quiet(self, ours: Collection[threading.Thread] = ()) -> tuple[ForkObstacle, ...]:
        """End the threads that can be ended; return those that prevent a fork. If empty, fork now.

        ours: threads whose loss in a copy the caller handles. Called by the main thread, between cells. Paused pools
        need no waking: the next computation starts them, in the process and in its copies. DuckDB's do
        (`THREADS.begin_again`), before any user code runs in any of these.
        """
        self.idle = NONE
        if library := python_threads.unforkable():
            return (ForkObstacle(kind="library", owner=library, threads=0),)
        if proc_info.is_single_threaded():
            return ()
        python_threads.end_waiting_threads()
        if proc_info.is_single_threaded():
            return ()
        python = self._busy(ours)
        if proc_info.is_single_threaded():
            return ()
        if python:  # one of them may be using the pools, or a database
            return python
        known = {thread.native_id for thread in ours if thread.native_id is not None} | self.idle.natives
        is_ended = THREADS.end()
        left = self._left(known)
        if is_ended and any(_owner(thread) == _LIBRARIES["duckdb"] for thread in left):
            THREADS.end_default()
            left = self._left(known)
        return _reasons(left)

    def lasting(self) -> tuple[ForkObstacle, ...]:
        """Threads that a cell has left, and that will not end soon: those that run user code, those of libraries that
        wait for something other than work, and permanent ones. Each is returned once. Called at the end of a cell."""
        if proc_info.is_single_threaded():
            self._told = frozenset()
            return ()
        idle, frames = IdlePools.now(), _current_frames()
        found = dict(_python_threads((), idle.threads | OWN))
        threads = {
            ident: name
            for ident, name in found.items()
            if not is_of_a_library(frames.get(ident)) or type(_alive.get(ident)) is threading.Timer
        }
        frames.clear()  # they are the program's: nothing of ours keeps them alive
        threads |= self._waiting({ident: name for ident, name in found.items() if ident not in threads})
        lasting: dict[int | str, ForkObstacle] = {
            ident: ForkObstacle(kind="python", owner=name, threads=1) for ident, name in threads.items()
        }
        lasting |= self._lasting_natives()
        told, self._told = self._told, frozenset(lasting)
        return tuple(reason for key, reason in lasting.items() if key not in told)

    def _waiting(self, threads: dict[int, str]) -> dict[int, str]:
        """Of threads that run a library's code, those that wait at one place: an event loop's, one whose task waits.

        Others are about to wait for work, or to end. One that has not been seen before is looked at for some
        milliseconds, without the interpreter's lock, so it does not wait for that.
        """
        waiting = {ident: name for ident, name in threads.items() if ident in self._told}
        left = {
            ident: name
            for ident, name in threads.items()
            if ident not in waiting and not python_threads.can_be_ended(_alive.get(ident))
        }
        places, seen = _places(left), Counter[int]()
        for _ in range(_MOST_LOOKS):
            if all(seen[ident] >= _LOOKS for ident in places):
                break
            _sleep(_PAUSE)
            before, idle = places, IdlePools.now().threads
            places = {ident: place for ident, place in _places(left).items() if ident not in idle}
            for ident, place in places.items():
                seen[ident] = seen[ident] + 1 if place == before.get(ident) and _waits(ident) else 0
        return waiting | {ident: left[ident] for ident in places if seen[ident] >= _LOOKS}

    def _lasting_natives(self) -> dict[int | str, ForkObstacle]:
        if _LASTING.isdisjoint(_modules):
            return {}
        ids = proc_info.other_threads()
        unseen = [id for id in ids if id and id not in self._seen]
        if unseen:
            looked = proc_info.native_threads(unseen, MemoryMap())
            self._seen.update((thread.id, thread) for thread in looked if thread.library)
        counts = Counter(_owner(self._seen[id]) for id in ids if id in self._seen)
        return {
            owner: ForkObstacle(kind="native", owner=owner, threads=counts[owner])
            for module in sorted(_LASTING)
            if (owner := _LIBRARIES[module]) in counts
        }

    def _busy(self, ours: Collection[threading.Thread]) -> tuple[ForkObstacle, ...]:
        """Threads of Python code that do not wait for work. One of a library's may be about to."""
        for _ in range(_LOOKS):
            self.idle = IdlePools.now()
            if not (busy := _python_threads(ours, self.idle.threads)):
                return ()
            frames = _current_frames()
            if not all(is_of_a_library(frames.get(ident)) for ident, _ in busy):
                break
            _sleep(_PAUSE)
        return tuple(ForkObstacle(kind="python", owner=name, threads=1) for _, name in busy)

    def _left(self, known: Collection[int]) -> list[NativeThread]:
        """Threads that still prevent a fork after all that could be ended."""
        self._seen = {id: self._seen[id] for id in proc_info.other_threads() if id in self._seen}
        running: list[NativeThread] = []
        if self._unseen(known):
            pause_native_pools()
            python_threads.pause_library_threads()
            running = self._look(known)
        return [thread for thread in (*self._seen.values(), *running) if not _survives(thread)]

    def _unseen(self, known: Collection[int]) -> list[int]:
        return [id for id in proc_info.other_threads(known) if id not in self._seen]

    def _look(self, known: Collection[int]) -> list[NativeThread]:
        """Identifies each thread as soon as it waits. Returns those that kept running."""
        mapped = None
        running: list[NativeThread] = []
        for _ in range(_LOOKS):
            if not (unseen := self._unseen(known)):
                return []
            mapped = mapped or MemoryMap()
            threads = proc_info.native_threads(unseen, mapped)
            self._seen.update((thread.id, thread) for thread in threads if thread.library)
            running = [thread for thread in threads if not thread.library]
            if not running:
                return []
            _sleep(_PAUSE)
        return running


def _places(threads: Collection[int]) -> dict[int, tuple[int, int]]:
    """Where these threads are: the innermost function of Python code, and the instruction."""
    frames = _current_frames()
    return {
        ident: (id(frame), frame.f_lasti) for ident in threads if (frame := frames.get(ident)) is not None
    }


def _waits(ident: int) -> bool:
    thread = _alive.get(ident)
    return thread is not None and thread.native_id is not None and proc_info.waits(thread.native_id)


def _python_threads(ours: Collection[threading.Thread], idle: Collection[int]) -> list[tuple[int, str]]:
    """Ids and names, also of threads that `threading` does not know. The interpreter's own list is complete."""
    idents = set(_current_frames()) - {thread.ident for thread in ours} - {_main.ident} - set(idle)
    names = {thread.ident: thread.name for thread in _enumerate()}
    return [(ident, str(names.get(ident, "without a name"))[:100]) for ident in sorted(idents)]


def _reasons(threads: list[NativeThread]) -> tuple[ForkObstacle, ...]:
    owners = Counter(_owner(thread) for thread in threads)
    return tuple(ForkObstacle(kind="native", owner=owner, threads=number) for owner, number in owners.items())


def _survives(thread: NativeThread) -> bool:
    return thread.name == _SURVIVING_NAME or any(part in thread.library for part in _SURVIVORS)


def _owner(thread: NativeThread) -> str:
    for part, name in _LIBRARIES.items():
        if part in thread.library or part in thread.name:
            return name
    return thread.library or f"unknown origin{thread.name and f', called {thread.name}'}"
