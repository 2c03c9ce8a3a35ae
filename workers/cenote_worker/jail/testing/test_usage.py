"""The dependencies of tests, with versions: functions of the user's files, and the tracker's data.

Each function that really runs is recorded at its first call. A function is identified by its code, so that a change
of one can be distinguished from a change of another.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from cenote_worker.execution.trace import ABSENT, ANYTHING, Location, StepTrace, key_of, kind_of
from cenote_worker.jail.testing.forked_child import Plain
from cenote_worker.jail.tracking.code.instructions import said_anywhere
from cenote_worker.jail.tracking.tracker import Tracker
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


def digests_of(path: str) -> dict[str, str]:
    """By qualified name, `<module>` for code that runs on import; empty for a file that is missing or is not Python.

    Inner definitions are left out of a digest, since they count separately if they run. So are line numbers: moving a
    function does not change it. Definitions of one name, such as lambdas, share one digest.
    """
    try:
        whole = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    said: dict[str, list[str]] = {}
    for code in _all(whole):
        said.setdefault(code.co_qualname, []).append(_said(code))
    return {
        name: hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()
        for name, parts in said.items()
    }


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if type(const) is CodeType:
            yield from _all(const)


def _said(code: CodeType) -> str:
    said, held = said_anywhere(code)
    constants = [_constant(each) for each in held]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return repr((said, code.co_exceptiontable, constants, names, shape))


def _constant(value: object) -> str:
    """Sorted sets: their own order depends on hashes, which differ between processes."""
    if type(value) is CodeType:
        return f"code {value.co_qualname}"
    if type(value) is frozenset:
        return f"set {sorted(map(_constant, value))}"
    return f"{type(value).__name__} {value!r}"


_INSPECTING: Final = frozenset(
    ("__code__", "__doc__", "__annotations__", "co_code", "co_consts", "getsource", "getsourcelines", "getdoc",
     "signature", "getmembers", "getfullargspec", "dis", "get_annotations")
)  # fmt: skip
"""With these a program learns about a function without running it."""

_REPLACED: Final = "it replaces the tracer of calls"


class CallFollower:
    """Follows code in files below a folder."""

    def __init__(self, top: str) -> None:
        self._top = f"{os.path.realpath(top)}/"
        self._known: dict[int, CodeType] = {}
        """By identity: comparing code objects by content takes long."""
        self.ran: set[tuple[str, str]] = set()
        """Path relative to the folder, and qualified name."""
        self.words: set[str] = set()
        """Names in the code."""
        self.disturbed = ""

    @contextmanager
    def following(self) -> Iterator[None]:
        """Records calls, those in new threads too. disturbed: why not all were recorded."""
        trace = self._called
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            yield
        finally:
            if sys.gettrace() is not trace:
                self.disturbed = _REPLACED
            sys.settrace(None)
            threading.settrace(None)

    @property
    def inspects(self) -> bool:
        """Whether the code may inspect functions without running them."""
        return not self.words.isdisjoint(_INSPECTING)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        if id(code) not in self._known:
            self._known[id(code)] = code
            if code.co_filename.startswith(self._top):
                self.ran.add((code.co_filename[len(self._top) :], code.co_qualname))
                self.words.update(code.co_names)


_CODE: Final = "code:"


class SuiteUsage:
    """The dependencies of one suite. Items are locations, and `code:PATH:NAME` for a function that ran.

    by_function: modules of the user's are tracked by the functions that run. They were imported while being followed,
    so the code that ran then is known; a module that a cell has imported is tracked as a whole.
    """

    def __init__(self, tracker: Tracker, top: str, *, by_function: bool) -> None:
        self.tracker = tracker
        self.top = os.path.realpath(top)
        self._by_function = by_function
        self._digests: dict[str, dict[str, str]] = {}
        self._own: set[str] = set()
        """Modules of the user's, by their dotted names."""
        self._imported: set[Location] = set()
        """Their files."""

    def version(self, item: str) -> str:
        """The current version; empty if the item no longer exists."""
        if item.startswith(_CODE):
            path, _, function = item.removeprefix(_CODE).rpartition(":")
            return self._code(path, function)
        location = Location(item)
        return self.tracker.versions([location]).get(location, ABSENT)

    def of_import(self, trace: StepTrace, follower: CallFollower) -> Plain:
        """The dependencies of loading the suite, which each of its tests has."""
        self._imported = {Location(f"file:{path}") for path, name in follower.ran if name == "<module>"}
        self._own = set(self.tracker.own_modules)
        used: dict[str, str] = {location: self.version(location) for location in self._watched(trace)}
        return {"used": used | self._ran(follower), "unsteady": _unsteady(trace, follower)}

    def of(self, trace: StepTrace, follower: CallFollower, imported: Plain) -> Plain:
        """The dependencies of a test, with their versions before it ran."""
        used = dict(imported["used"]) if isinstance(imported["used"], dict) else {}
        used |= {item: trace.reads[item] for item in self._watched(trace)}
        if self._by_function:
            used |= self._ran(follower)
        return {"used": used, "unsteady": imported["unsteady"] or _unsteady(trace, follower)}

    def _watched(self, trace: StepTrace) -> Iterable[Location]:
        for location in trace.reads:
            kind = kind_of(location)
            if location == ANYTHING or (self._by_function and self._is_followed(location, kind)):
                continue
            yield location

    def _is_followed(self, location: Location, kind: str) -> bool:
        """Whether it is a part of the suite or of its modules, of which the functions that ran count."""
        return (
            kind == "name"
            or (kind == "module" and key_of(location) in self._own)
            or (kind == "file" and location in self._imported)
        )

    def _ran(self, follower: CallFollower) -> dict[str, str]:
        ran = follower.ran
        if follower.inspects:  # functions that did not run may matter
            paths = {path for path, _ in ran} | {key_of(each) for each in self._imported}
            ran = ran | {(path, name) for path in paths for name in self._known(path)}
        return {f"{_CODE}{path}:{name}": self._code(path, name) for path, name in ran}

    def _code(self, path: str, function: str) -> str:
        return self._known(path).get(function, ABSENT)

    def _known(self, path: str) -> dict[str, str]:
        if path not in self._digests:
            self._digests[path] = digests_of(f"{self.top}/{path}")
        return self._digests[path]


def _unsteady(trace: StepTrace, follower: CallFollower) -> str:
    """Why the data does not suffice to skip the test; empty if it does."""
    reasons = (*trace.opaque, *trace.unrepeatable)
    return reasons[0] if reasons else follower.disturbed
