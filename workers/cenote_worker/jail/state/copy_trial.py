"""Finds out in advance whether a copy of a state will be like the original: loads the pickles and compares.

Runs in a frozen copy of the process, which ends afterwards. User code that runs while values are rebuilt must not
reach the files, other processes or the network of the live process.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType
from typing import Any, Final

from cenote_security.sealed_memory import PrivatePages
from cenote_worker.execution.state_index import FAILS, OTHER_CONTENT
from cenote_worker.jail.rendering.bounded_text import bounded_str
from cenote_worker.jail.state.pickles_unsafe import Landing, load
from cenote_worker.jail.state.variable_groups import PickledGroup
from cenote_worker.jail.tracking.descriptions.known_digests import LARGE, SAMPLE, samples_of
from cenote_worker.jail.tracking.files import audit_hook
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

SECONDS: Final = 2.0
"""Seconds for all rebuilding."""

LARGEST: Final = 64 * 2**20
"""Bytes of a pickle: rebuilding takes about the same amount of memory again."""

_TOO_LATE: Final = "there was no time to try it"
_TOO_LARGE: Final = "it is too large to be tried"
_REASON_CHARS: Final = 200
_DEPTH: Final = 6
_BREADTH: Final = 2_000
_KEY_CHARS: Final = 60


class OutOfBounds(Exception):
    """Code that rebuilds a value tried to change something outside the process."""


class _OutOfTime(BaseException):
    """An exception that user code does not catch."""


@contextmanager
def staying_inside() -> Iterator[None]:
    """For code that may run user code: rebuilding values and comparing them. The state is sent afterwards."""
    audit_hook.listen(_stay_inside)
    try:
        yield
    finally:
        audit_hook.listen(None)


class CopyTrial:
    """The trial of one state, in a process dedicated to it. Not to be made in the live process."""

    def __init__(self, anchor: Callable[[str, str], object], *, hollow: bool) -> None:
        """anchor: see Landing. hollow: of large memory only the sampled pages are copied."""
        self._hollow = hollow
        self._module = ModuleType("__main__")
        self.namespace: dict[str, object] = vars(self._module)
        self._anchor = anchor
        self.untried: dict[str, str] = {}
        """By name, why it was not rebuilt here."""

    def carry_out(self, groups: Iterable[PickledGroup], names: Sequence[str]) -> None:
        """Rebuilds these groups, in `staying_inside`. names: all names of the state, in order."""
        self.namespace["__builtins__"] = vars(sys.modules["__main__"]).get("__builtins__")
        sys.modules["__main__"] = self._module
        _forget_made_modules()
        rebuilt = dict[str, object]()
        groups = list(groups)
        late = self._rebuild(groups, rebuilt)
        self.untried.update(dict.fromkeys(late, _TOO_LATE))
        self.namespace.update((each, rebuilt[each]) for each in names if each in rebuilt)

    def _rebuild(self, groups: Sequence[PickledGroup], rebuilt: dict[str, object]) -> list[str]:
        """Returns the names for which there was no time."""
        landing = Landing(self.namespace, self._anchored)
        waiting = list(groups)
        handler = signal.signal(signal.SIGALRM, _out_of_time)
        remaining, _ = signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            while waiting:
                self._load(waiting[0], landing, rebuilt)
                waiting.pop(0)
        except _OutOfTime:
            pass
        finally:
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, remaining)
        return [each for group in waiting for each in group.names]

    def _load(self, group: PickledGroup, landing: Landing, rebuilt: dict[str, object]) -> None:
        copied = group.parts[0].nbytes if self._hollow else sum(part.nbytes for part in group.parts)
        if copied > LARGEST:
            self.untried.update(dict.fromkeys(group.names, _TOO_LARGE))
            return
        try:
            buffers = [_copied(part, hollow=self._hollow) for part in group.parts[1:]]
            rebuilt.update(load([group.parts[0], *buffers], landing))
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            bounds = isinstance(error, OutOfBounds | MemoryError)  # of the trial: elsewhere it may succeed
            kind = "" if bounds else f"{FAILS}{type(error).__name__}: "
            self.untried.update(dict.fromkeys(group.names, f"{kind}{bounded_str(error, _REASON_CHARS)}"))

    def _anchored(self, kind: str, name: str) -> object:
        return self._module if kind == "module" else self._anchor(kind, name)


def _forget_made_modules() -> None:
    """No import makes in another process what a cell has put into `sys.modules`."""
    for dotted, module in list(sys.modules.items()):
        if type(module) is ModuleType and dotted != "__main__":
            table = vars(module)
            if table.get("__spec__") is None and "__file__" not in table:
                del sys.modules[dotted]


def _copied(part: memoryview, *, hollow: bool) -> memoryview:
    """A copy, as in another process. hollow: of large memory only the sampled pages, see SampledMemory."""
    if not part.nbytes:
        return part
    memory = part.cast("B")
    pages = memoryview(PrivatePages(-1, part.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    if not hollow or part.nbytes < LARGE:
        pages[:] = memory
        return pages
    for start in samples_of(part.nbytes):
        pages[start : start + SAMPLE] = memory[start : start + SAMPLE]
    return pages


def is_hollow(group: PickledGroup) -> bool:
    """Whether a trial may leave out some of its memory."""
    return any(part.nbytes >= LARGE for part in group.parts[1:])


def _out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise _OutOfTime


def _stay_inside(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook's listener."""
    if event == "open" and arguments[0] == os.devnull:
        return  # a closed file is made from it
    if audit_hook.reaches_out(event, arguments):
        raise OutOfBounds(f"rebuilding it changes files or calls outside ({event}), which is not tried")


# -- what differs --


def told_apart(name: str, original: object, copy: object) -> str:
    """A description of the first difference. Only plain containers and attributes are compared."""
    with suppress(Exception):  # a class may have comparisons of its own, and a library was changed
        return _Comparison().of(name, original, copy, _DEPTH) or OTHER_CONTENT
    return OTHER_CONTENT


class _Comparison:
    def __init__(self) -> None:
        self._met: set[int] = set()
        self._left = _BREADTH

    def of(self, path: str, original: Any, copy: Any, depth: int) -> str:
        """Empty if both look alike."""
        self._left -= 1
        if original is copy or depth == 0 or self._left < 0 or id(original) in self._met:
            return ""
        self._met.add(id(original))
        if type(original).__qualname__ != type(copy).__qualname__:
            return f"{path} is a {type(copy).__qualname__} in a copy, not a {type(original).__qualname__}"
        found = self._held(path, original, copy, depth)
        return found or self._attributes(path, original, copy, depth)

    def _held(self, path: str, original: Any, copy: Any, depth: int) -> str:
        if isinstance(original, set | frozenset):
            if len(original) == len(copy) and all(each in copy for each in original):
                return f"the members of {path} come in another order"
            return f"{path} has other members"
        if isinstance(original, dict):
            return self._items(path, dict(original), dict(copy), depth)
        if isinstance(original, list | tuple):
            if len(original) != len(copy):
                return f"{path} has {len(copy)} items in a copy, not {len(original)}"
            pairs = enumerate(zip(original, copy, strict=True))
            return self._first(self.of(f"{path}[{place}]", *pair, depth - 1) for place, pair in pairs)
        if isinstance(original, str | bytes | int | float | complex) and original != copy:
            return f"{path} has another value in a copy"
        return ""

    def _items(self, path: str, original: Mapping[Any, Any], copy: Mapping[Any, Any], depth: int) -> str:
        lost = [each for each in original if each not in copy]
        if lost:
            return f"{path} lacks the key {_shown(lost[0])} in a copy"
        if len(copy) > len(original):
            return f"{path} has more keys in a copy"
        return self._first(
            self.of(f"{path}[{_shown(key)}]", value, copy[key], depth - 1) for key, value in original.items()
        )

    def _attributes(self, path: str, original: Any, copy: Any, depth: int) -> str:
        had, has = _attributes_of(original), _attributes_of(copy)
        if lost := [each for each in had if each not in has]:
            return f"{path}.{lost[0]} is not in a copy"
        return self._first(self.of(f"{path}.{key}", value, has[key], depth - 1) for key, value in had.items())

    @staticmethod
    def _first(found: Iterable[str]) -> str:
        return next(filter(None, found), "")


def _shown(key: object) -> str:
    return (
        bounded_str(repr(key), _KEY_CHARS)
        if type(key) in (str, int, float, bool)
        else f"a {type(key).__name__}"
    )


def _attributes_of(value: Any) -> dict[str, Any]:
    try:
        table = object.__getattribute__(value, "__dict__")
    except AttributeError:
        table = {}
    found = dict(table) if isinstance(table, dict) else {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else tuple(slots):
            with suppress(AttributeError):
                found.setdefault(slot, getattr(value, slot))
    return found
