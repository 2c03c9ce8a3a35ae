"""Idle threads of Python code, and idle pools of threads and processes, around a fork.

Some libraries have waiting threads that end on request and start again when they are needed. A user who shows a
progress bar did not ask for a thread. While one is alive, no copy of the process can be made, and a step is not the
only thread that runs, so its effects are not known for sure.

Pools live for minutes: `n_jobs` of scikit-learn and joblib, executors, `asyncio.to_thread`. While a pool is idle,
only the pool itself refers to its threads. Each waits at a known place in a library's code, where it holds no lock.
So a copy without them is the same program with pools that have not started yet.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from cenote_worker.jail.tracking.process_state.modules import is_of_library
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_alive = threading._active  # type: ignore[attr-defined]
_modules = sys.modules
_putenv, _unsetenv = os.putenv, os.unsetenv
_variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_TOKENIZERS: Final = b"TOKENIZERS_PARALLELISM"
"""The variable that tokenizers read from the C library each time."""


def end_waiting_threads() -> None:
    """Called by the main thread, between cells. Ends threads of these libraries only; never raises."""
    if len(_alive) < 2:
        return
    for thread in list(_alive.values()):
        for kind, end in _ENDED_BY.items():
            if _is_called(thread, kind):
                with suppress(Exception):  # a cell may have changed the library
                    end(thread)


def can_be_ended(thread: threading.Thread | None) -> bool:
    """Whether `end_waiting_threads` ends it."""
    return thread is not None and any(_is_called(thread, kind) for kind in _ENDED_BY)


def _is_called(thread: threading.Thread, kind: str) -> bool:
    return kind in (type(thread).__module__, thread.name)


def pause_library_threads() -> None:
    """Has libraries end threads of their own for which no C function is known; never raises."""
    cv2: Any = _modules.get("cv2")
    with suppress(Exception):
        if cv2 is not None and (count := cv2.getNumThreads()) > 1:
            cv2.setNumThreads(1)  # ends the threads at once
            cv2.setNumThreads(count)  # starts them when they are needed


def begin_fork() -> None:
    """Tokenizers turn their threads off in a copy, with a warning on stderr, unless the user has set the variable."""
    if "tokenizers" in _modules:
        _putenv(_TOKENIZERS, b"false")


def end_fork(*, is_copy: bool) -> None:
    """In the process that was forked. is_copy: it is a copy itself, in which the threads stay off because it has
    none."""
    if "tokenizers" in _modules and not is_copy:
        if (wanted := _variables.get(_TOKENIZERS)) is None:
            _unsetenv(_TOKENIZERS)
        else:
            _putenv(_TOKENIZERS, wanted)


def _exit(monitor: Any) -> None:
    """Ends tqdm's monitor of bars that have not moved for long. The next bar starts it again."""
    monitor.exit()


def _clean_up(_loop: threading.Thread) -> None:
    """Ends Zarr's event loop with its threads. The next call that needs them starts them again."""
    _modules["zarr.core.sync"].cleanup_resources()


_ENDED_BY: Final[Mapping[str, Callable[[threading.Thread], None]]] = {
    "tqdm._monitor": _exit,
    "zarr_io": _clean_up,
}
"""Keys are the module of a thread's class, or the thread's name."""


def unforkable() -> str:
    """The library that makes a copy end itself, if there is one.

    Numba's layer over GNU OpenMP remembers its process. In another process it terminates that process at the next
    parallel loop, although its threads are paused.
    """
    layer: Any = _modules.get("numba.np.ufunc.omppool")
    parallel: Any = _modules.get("numba.np.ufunc.parallel")
    guarded = getattr(layer, "openmp_vendor", "") == "GNU" and getattr(parallel, "_is_initialized", False)
    return "Numba's threads over OpenMP (NUMBA_THREADING_LAYER=workqueue has others)" if guarded else ""


_current_frames = sys._current_frames
_alive_threads: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
_after_fork: Callable[[], None] = threading._after_fork  # type: ignore[attr-defined]
_main = threading.main_thread()
_kill, _getppid = os.kill, os.getppid

_MANAGERS: Final = (
    "concurrent.futures.process",
    "joblib.externals.loky.process_executor",
    "loky.process_executor",
)
"""Modules of process executors. Each executor has a thread that hands out the work."""

_TRACKERS: Final = (
    "multiprocessing.resource_tracker",
    "joblib.externals.loky.backend.resource_tracker",
    "loky.backend.resource_tracker",
)
"""Modules with a pipe to a process that cleans up; in a copy the other end of the pipe is closed."""

_REUSED: Final = ("joblib.externals.loky.reusable_executor", "loky.reusable_executor")
"""Modules with the executor that all calls share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePools:
    """Idle pools of one process at one moment. threads: all their threads, by `threading.get_ident`. natives: the
    same threads by kernel id. renewals: functions that make each pool anew.
    """

    threads: frozenset[int] = frozenset()
    natives: frozenset[int] = frozenset()
    renewals: tuple[Callable[[], None], ...] = ()

    @classmethod
    def now(cls) -> IdlePools:
        """Called by the main thread, between cells. Never raises."""
        frames = _current_frames()
        frames.pop(_main.ident or 0, None)
        if not frames:
            return NONE
        threads, renewals = set[int](), list[Callable[[], None]]()
        for look in (_executors, _pools, _process_executors, _queues):
            with suppress(
                Exception
            ):  # a cell may have changed the library, or it is of a version with other parts
                for idents, renewal in look(frames):
                    threads |= idents
                    renewals.append(renewal)
        natives = {thread.native_id for ident in threads if (thread := _alive_threads.get(ident)) is not None}
        known = frozenset(each for each in natives if each is not None)
        return cls(threads=frozenset(threads), natives=known, renewals=tuple(renewals))

    def part(self) -> None:
        """In a copy, which has none of these threads: stops Python from waiting for them."""
        if self.threads:
            _after_fork()

    def renew(self) -> tuple[str, ...]:
        """In a copy that becomes the worker. Returns what could not be made anew, a line each."""
        failed = []
        for name in _TRACKERS:
            with suppress(Exception):
                _forget_tracker(_modules.get(name))
        for renewal in self.renewals:
            try:
                renewal()
            except Exception as error:  # an initializer of the user's, or no room for a process
                failed.append(
                    f"a pool of threads or processes could not be begun again: {type(error).__name__}"
                )
        return tuple(failed)


NONE: Final = IdlePools()

Found = Iterator[tuple[set[int], Callable[[], None]]]
Frames = Mapping[int, FrameType]


def is_of_a_library(frame: FrameType | None) -> bool:
    """Whether a thread runs no user code. Then it may be about to wait, or to end."""
    while frame is not None:
        if not is_of_library(frame.f_code.co_filename):
            return False
        frame = frame.f_back
    return True


# -- threads that run whatever they are given --


def _executors(frames: Frames) -> Found:
    """`ThreadPoolExecutor`; asyncio has one too."""
    module: Any = _modules.get("concurrent.futures.thread")
    if module is None:
        return
    waiting = dict[int, set[int]]()
    executors = dict[int, Any]()
    for ident, frame in frames.items():
        if frame.f_code is not module._worker.__code__ or frame.f_locals.get("work_item") is not None:
            continue
        executor = frame.f_locals["executor_reference"]()
        if executor is not None:
            executors[id(executor)] = executor
            waiting.setdefault(id(executor), set()).add(ident)
    for number, executor in executors.items():
        if executor._work_queue.empty() and not executor._shutdown:
            yield waiting[number], _Renewal(_renew_executor, executor)


def _renew_executor(executor: Any) -> None:
    executor._work_queue = queue.SimpleQueue()
    executor._idle_semaphore = threading.Semaphore(0)
    executor._shutdown_lock = threading.Lock()
    executor._threads.clear()


def _pools(frames: Frames) -> Found:
    """`multiprocessing.Pool` and `ThreadPool`."""
    module: Any = _modules.get("multiprocessing.pool")
    util: Any = _modules.get("multiprocessing.util")
    if module is None or util is None:
        return
    for finalizer in list(util._finalizer_registry.values()):
        pool = finalizer._weakref() if finalizer._weakref is not None else None
        if not isinstance(pool, module.Pool) or pool._state != module.RUN or pool._cache:
            continue
        threads = [pool._worker_handler, pool._task_handler, pool._result_handler]
        threads += [each for each in pool._pool if isinstance(each, threading.Thread)]
        idents = {thread.ident for thread in threads if thread.ident is not None}
        if pool._taskqueue.empty() and all(is_of_a_library(frames.get(ident)) for ident in idents):
            yield idents, _Renewal(_renew_pool, pool)


def _renew_pool(pool: Any) -> None:
    module: Any = _modules["multiprocessing.pool"]
    pool._terminate.cancel()
    arguments = pool._processes, pool._initializer, pool._initargs
    if isinstance(pool, module.ThreadPool):
        module.ThreadPool.__init__(pool, *arguments)
        return
    _end(process.pid for process in pool._pool)
    module.Pool.__init__(pool, *arguments, pool._maxtasksperchild, pool._ctx)


# -- processes --


def _process_executors(frames: Frames) -> Found:
    """`ProcessPoolExecutor`, and loky's executor, which joblib and scikit-learn use."""
    for ident in frames:
        thread: Any = _alive_threads.get(ident)
        if type(thread).__module__ not in _MANAGERS:
            continue
        executor = thread.executor_reference()
        if executor is not None and not executor._pending_work_items and is_of_a_library(frames[ident]):
            yield {ident}, _Renewal(_renew_process_executor, executor, type(thread).__module__)


def _renew_process_executor(executor: Any, home: str) -> None:
    _end(executor._processes or ())
    executor._executor_manager_thread_wakeup._closed = True  # the other end of its pipe is closed
    for name in _REUSED:  # the next call makes a new one, for its own needs
        if getattr(_modules.get(name), "_executor", None) is executor:
            setattr(_modules[name], "_executor", None)  # noqa: B010  (a module has no attribute that is known)
    kept = {"max_workers": executor._max_workers, "initializer": executor._initializer}
    if home == _MANAGERS[0]:
        kept |= {"mp_context": executor._mp_context, "max_tasks_per_child": executor._max_tasks_per_child}
    else:
        kept |= {"context": executor._context, "timeout": executor._timeout, "env": executor._env}
    module: Any = _modules[home]
    module.ProcessPoolExecutor.__init__(executor, **kept, initargs=executor._initargs)


def _queues(frames: Frames) -> Found:
    """Threads that move items from a queue into a pipe."""
    module: Any = _modules.get("multiprocessing.queues")
    util: Any = _modules.get("multiprocessing.util")
    if module is None or util is None:
        return
    for each in list(util._afterfork_registry.values()):
        thread = each._thread if isinstance(each, module.Queue) else None
        ident: int = 0 if thread is None else thread.ident
        if ident in frames and not each._buffer and is_of_a_library(frames[ident]):
            yield {ident}, _Renewal(each._reset, after_fork=True)


class _Renewal:
    """A call to be made in a copy."""

    def __init__(self, call: Callable[..., object], *arguments: object, **named: object) -> None:
        self._call, self._arguments, self._named = call, arguments, named

    def __call__(self) -> None:
        self._call(*self._arguments, **self._named)


def _forget_tracker(module: Any) -> None:
    """A new tracker starts when it is needed. Without this, a warning would say that the old one died
    unexpectedly."""
    tracker = getattr(module, "_resource_tracker", None)
    if tracker is not None and tracker._fd is not None:
        os.close(tracker._fd)
        tracker._fd = tracker._pid = None


def _end(processes: Iterable[int | None]) -> None:
    """Kills processes of the former process, which has ended: they wait for work that never comes."""
    warden = _getppid()
    for pid in processes:
        with suppress(OSError, ValueError):
            if pid is not None and _parent(pid) == warden:
                _kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
