"""`multiprocessing` from cells: definitions for processes that start afresh, and pools whose workers die.

A process of the methods spawn and forkserver imports what it is sent. Functions and classes of cells are in no file
that it could import, so they go by value. A pool whose worker has died waits in plain Python for ever for what that
worker had taken; here its calls fail.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Final

import cloudpickle

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_FRESH: Final = ("spawn", "forkserver")
_MAIN: Final = "__main__"
_modules = sys.modules


def send_definitions(reduction: Any) -> None:
    """Sets `multiprocessing.reduction`."""
    reduction.ForkingPickler.reducer_override = _reduced


def fail_with_workers(pools: Any) -> None:
    """Sets `multiprocessing.pool`."""
    handle = pools.Pool.__dict__["_handle_workers"].__func__
    join = pools.Pool._join_exited_workers
    waiting: dict[int, MutableMapping[int, Any]] = {}

    def handle_workers(cls: Any, cache: Any, taskqueue: Any, ctx: Any, process: Any, count: int, pool: Any,
                       *rest: Any) -> None:  # fmt: skip
        waiting[id(pool)] = cache
        try:
            handle(cls, cache, taskqueue, ctx, process, count, pool, *rest)
        finally:
            del waiting[id(pool)]

    def join_exited_workers(pool: list[Any]) -> Any:
        before = list(pool)
        joined = join(pool)
        failed = [worker.exitcode for worker in before if worker not in pool and worker.exitcode]
        if failed and (cache := waiting.get(id(pool))):
            _fail(cache.values(), _modules["multiprocessing"].ProcessError(_told(failed[0])))
        return joined

    pools.Pool._handle_workers = classmethod(handle_workers)
    pools.Pool._join_exited_workers = staticmethod(join_exited_workers)


def _told(exitcode: int) -> str:
    how = f"was ended by signal {-exitcode}" if exitcode < 0 else f"ended with status {exitcode}"
    return (
        f"a worker process of the pool {how}, and what it had taken is lost; stderr says why, if it raised. "
        "Use one process to find the cause"
    )


def _fail(results: Iterable[Any], error: Exception) -> None:
    """Of every call that waits: which of them the worker had taken is not known."""
    for result in list(results):
        if hasattr(result, "_number_left"):
            result._number_left = 1  # it is over with this, not when all its parts are
        result._set(getattr(result, "_index", 0), (False, error))


def restored(data: bytes) -> object:
    """In the other process: a definition. Classes get their names there, by which what is sent back is found."""
    found: Any = cloudpickle.loads(data)
    names = vars(_modules[_MAIN])
    for each in [found, *getattr(found, "__globals__", {}).values()]:
        if isinstance(each, type) and each.__module__ == _MAIN:
            names.setdefault(each.__qualname__, each)
    return found


def _reduced(_pickler: object, obj: Any) -> Any:
    if not isinstance(obj, (types.FunctionType, type)) or getattr(obj, "__module__", None) != _MAIN:
        return NotImplemented
    if not _goes_to_a_fresh_process():
        return NotImplemented
    restore: Callable[[bytes], object] = restored
    return restore, (cloudpickle.dumps(obj),)


def _goes_to_a_fresh_process() -> bool:
    """What is sent may go to any process that this one has started."""
    being_started = _modules["multiprocessing.context"].get_spawning_popen()
    if being_started is not None:
        return getattr(being_started, "method", None) in _FRESH
    children = list(_modules["multiprocessing.process"]._children)
    return any(getattr(child, "_start_method", None) in _FRESH for child in children)
