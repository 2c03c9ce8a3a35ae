"""What tests use, with versions: functions of the user's files, and what a tracker of cells has seen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from cenote_worker.in_jail.testing.apart import Plain
from cenote_worker.in_jail.testing.codes import digests_of
from cenote_worker.in_jail.testing.followed import Follower
from cenote_worker.pristine import BUILTINS
from cenote_worker.trace import ABSENT, ANYTHING, Location, StepTrace, key_of, kind_of
from cenote_worker.tracking.tracker import Tracker

__builtins__ = BUILTINS

_CODE: Final = "code:"


class Uses:
    """Of one suite. Items are locations, and `code:PATH:NAME` for a function that ran.

    by_function: modules of the user's count by what of them runs. They were imported under watch, so that what runs
    then is known; of modules that a cell has imported only the whole is.
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
        """As it is now; of what is not there any more it is empty."""
        if item.startswith(_CODE):
            path, _, function = item.removeprefix(_CODE).rpartition(":")
            return self._code(path, function)
        location = Location(item)
        return self.tracker.versions([location]).get(location, ABSENT)

    def of_import(self, trace: StepTrace, follower: Follower) -> Plain:
        """What loading the suite used, which each of its tests does."""
        self._imported = {Location(f"file:{path}") for path, name in follower.ran if name == "<module>"}
        self._own = set(self.tracker.own_modules)
        used: dict[str, str] = {location: self.version(location) for location in self._watched(trace)}
        return {"used": used | self._ran(follower), "unsteady": _unsteady(trace, follower)}

    def of(self, trace: StepTrace, follower: Follower, imported: Plain) -> Plain:
        """What a test used, with the versions from before it ran."""
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

    def _ran(self, follower: Follower) -> dict[str, str]:
        ran = follower.ran
        if follower.inspects:  # functions may matter that did not run
            paths = {path for path, _ in ran} | {key_of(each) for each in self._imported}
            ran = ran | {(path, name) for path in paths for name in self._known(path)}
        return {f"{_CODE}{path}:{name}": self._code(path, name) for path, name in ran}

    def _code(self, path: str, function: str) -> str:
        return self._known(path).get(function, ABSENT)

    def _known(self, path: str) -> dict[str, str]:
        if path not in self._digests:
            self._digests[path] = digests_of(f"{self.top}/{path}")
        return self._digests[path]


def _unsteady(trace: StepTrace, follower: Follower) -> str:
    """Why what is known is not enough to spare the test; empty if it is."""
    reasons = (*trace.opaque, *trace.unrepeatable)
    return reasons[0] if reasons else follower.disturbed
