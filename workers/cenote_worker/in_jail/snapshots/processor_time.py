"""Processor time that goes on in a process that takes another one's place, as the wall clock does.

The kernel counts for each process anew, and a copy begins with nothing: a program that has kept what it had used by
then would find that time has gone back. So the functions that ask for it add what the processes before have used.
They are put in their modules only then, and in the namespace's names that had been bound to the former ones.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_SPENT = "_spent_before"
"""Nanoseconds, among the globals of the functions: a closure would make each of them another one."""

_ASKS = "_as_the_kernel_has_it"


def go_on(microseconds: int, namespace: dict[str, object]) -> None:
    """The processes before this one have used so much processor time, which the kernel does not count here."""
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
    # In the globals of its module: what it is, a program, a pickle and the tracker tell by these.
    made = FunctionType(function.__code__, table, name, function.__defaults__)
    made.__module__, made.__qualname__, made.__doc__ = module.__name__, name, getattr(former, "__doc__", None)
    table[name] = made
    for key in [key for key, value in namespace.items() if value is former]:
        namespace[key] = made


# The globals of these are those of the modules that they are put in.


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
