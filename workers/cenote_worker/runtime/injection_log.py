"""What every jail of a runtime begins with, and the other injections, so that they can be made again.

A patch that goes back to the start of the history needs a jail that begins as the first one did: this module finds
the injections for that, and the reasons why a fresh jail cannot begin in that state.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from cenote_security.errors import RejectedError
from cenote_worker.execution.trace import content_version
from cenote_worker.history.bounds import MAX_PUT_IN
from cenote_worker.history.history import History
from cenote_worker.history.step import START
from cenote_worker.runtime.handover.handover_log import NO_HANDOVER_LOG, HandoverLog
from cenote_worker.runtime.injection import Injection, from_bytes, in_place, to_bytes
from cenote_worker.runtime.recorder import InjectionListener
from cenote_worker.supervisor.requests import AuthorSession, Listener


@dataclass(frozen=True, slots=True)
class HistoryStart:
    """beginnings: the injections to make, in this order: by content, or itself where it replaces one that is gone.

    missing: names for which there is no injection.
    """

    beginnings: tuple[str | Injection, ...]
    missing: tuple[str, ...]

    @property
    def obstacle(self) -> str:
        """Why the start cannot be restored; empty if it can."""
        if not self.missing:
            return ""
        return f"{_spoken(self.missing)}, put in before the first step, is not here any more"


def start_of(history: History, noted: Sequence[Injection], keeps: Callable[[str], bool]) -> HistoryStart:
    """noted: what jails begin with now. keeps: whether the injection of a content can be made again.

    Where it cannot, and where an old history does not record it, an injection from before the first step that has the
    same names replaces it: versions show whether it has the same value.
    """
    beginnings: list[str | Injection] = []
    missing: list[str] = []
    told: set[str] = set()

    def stand_in(names: Sequence[str]) -> None:
        for name in names:
            given = [each for each in noted if each.step == START and name in each.qualified_names]
            if not given:
                missing.append(name)
            beginnings.extend(each for each in given if each not in beginnings)

    for each in history.begun_values:
        told.update(each.names)
        if keeps(each.content):
            beginnings.append(each.content)
        else:
            stand_in([name for name in each.names if name in history.begun])
    stand_in([name for name in history.begun if name not in told])
    return HistoryStart(tuple(beginnings), tuple(dict.fromkeys(missing)))


def unkept_files(history: History) -> str:
    """The reason why its files cannot be restored, as `HistoryStart.obstacle`."""
    unkept = [path for path, digest in history.begun_files.items() if not digest]
    return f"the content of {_spoken(unkept)}, written before the first step, is not kept" if unkept else ""


def _spoken(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" if name else "further files" for name in names)


MAX_INJECTIONS: Final = 5_000
"""Of one runtime of a platform: each is an entry of its node's descriptor store, which has 100,000 for all."""

MAX_TIMES: Final = 4
"""All injections of one runtime may take this many times its memory. They are mapped, and need not be read, but they
use the machine's memory, and no quota counts them. One value may take half of it.
"""

MAX_FORMER: Final = 256 * 2**20
"""Bytes of values that were replaced by later ones and are still stored."""

MAX_FORMER_VALUES: Final = 20
"""Number of such values: each has a descriptor, and a process with many runtimes has a thousand."""


class InjectionLog:
    """The injections, in order of arrival. Safe to use from several threads: the reactor's adds to it, and never
    waits.

    The injections that each jail begins with are stored as long as the runtime lives. One that a later one has
    replaced there, or a client has deleted, is needed only to begin before that. It is stored while there is room,
    without a copy; after that the history has it if it is small, else it is gone. A history on disk gets small ones
    at once, for other processes.
    """

    def __init__(self, legacy: HandoverLog, history: History, memory: int = MAX_FORMER) -> None:
        """memory: bytes that the runtime may have, and the limit for replaced injections."""
        self._room = memory
        self._legacy = legacy
        self._history = history
        self._lock = threading.Lock()
        self._injections: list[Injection] = []
        self._former: list[Injection] = []
        """Replaced, and not in the history; the oldest first."""

    def check_room(self, injection: Injection, memory: int) -> None:
        """Checks that it can be added to the others. memory: bytes a runtime may have. Raises RejectedError."""
        if self._legacy is NO_HANDOVER_LOG:
            return  # a process of its own, which knows its memory
        most = MAX_TIMES * memory
        stay = [old for old in self.all() if not injection.supersedes(old)]
        if sum(old.size for old in stay) + injection.size > most:
            raise RejectedError(
                f"all that is put into a runtime is kept for its later jails, {most} bytes at the most; replace "
                f"values, give the runtime more memory, or bring them as files"
            )
        if len(stay) >= MAX_INJECTIONS:
            raise RejectedError(
                f"at most {MAX_INJECTIONS} injections are kept; put in several values at once"
            )

    def identify(self, injection: Injection) -> None:
        """Gives it a content, its id in the history once it was added."""
        if injection.content:
            return
        # Reading all of it takes a good part of the time of the injection itself.
        if injection.size > MAX_PUT_IN or not self._history.is_kept:
            injection.content = uuid.uuid4().hex
        else:
            injection.form = to_bytes(injection)
            injection.content = content_version(injection.form)

    def add(self, injection: Injection) -> None:
        """Adds an injection, and takes it over. It supersedes those that have no names but its own."""
        self.identify(injection)
        if self._history.is_kept:
            self._write(injection)
        with self._lock:
            before = list(self._injections)
            superseded = self._given_up(injection.names, injection.seat)
            self._injections = in_place(before, injection, superseded.__contains__)
            self._legacy.accept(injection, superseded)
        self._released(superseded)

    def deleted(self, name: str, seat: AuthorSession) -> bool:
        """A client has deleted this name of the session's: an injection for it alone is not made in later jails.

        False where later jails would not have begun with the name.
        """
        with self._lock:
            found = any(old.gives(name, seat) for old in self._injections)
            over = self._given_up((name,), seat)
            if over:
                self._legacy.accept(None, over)
        self._released(over)
        return found

    def _given_up(self, names: Iterable[str], seat: AuthorSession) -> list[Injection]:
        """Moves the injections with no names but these to the former ones, and returns them."""
        over = [old for old in self._injections if old.is_over(names, seat)]
        self._injections = [old for old in self._injections if old not in over]
        self._former += over
        for old in self._injections:
            old.give_up(names, seat)
        return over

    def _released(self, over: list[Injection]) -> None:
        for old in over:
            self._legacy.release(old)
        if over:
            self._make_room()

    def remember(self, injection: Injection) -> None:
        """Takes over one that jails do not begin with. It can be made again while there is room for it."""
        with self._lock:
            self._former.append(injection)
        self._make_room()

    def _make_room(self) -> None:
        """Drops former injections that the history has, or gets now."""
        with self._lock:
            former, over = list(self._former), self._over()
        for each in former:
            if each in over or each.values.memory is None or self._history.is_kept:
                self._write(each)
        with self._lock:
            let_go = [each for each in former if each in over or each.content in self._history.values]
            self._former = [each for each in self._former if each not in let_go]
        for each in let_go:
            each.close()
            if not self.keeps(each.content):
                self._history.value_gone(each.content)

    def _over(self) -> list[Injection]:
        """The oldest former ones, as far as there are too many, or they are too large together."""
        left, size = len(self._former), sum(old.size for old in self._former)
        over = []
        for old in self._former:
            if left <= MAX_FORMER_VALUES and size <= min(MAX_FORMER, self._room):
                break
            over.append(old)
            left, size = left - 1, size - old.size
        return over

    def _write(self, injection: Injection) -> None:
        """Writes it into the history, if it is small."""
        form, injection.form = injection.form, b""
        if injection.size > MAX_PUT_IN or injection.content in self._history.values:
            return
        if self._history.has_room_for_value(injection.size):
            self._history.keep_value(injection.content, form or to_bytes(injection))

    def _let_go(self, injection: Injection) -> None:
        self._legacy.release(injection)
        injection.close()

    def restore(self, injection: Injection) -> None:
        """Adds one that another process has noted."""
        self.identify(injection)
        if self._history.is_kept:
            self._write(injection)
        with self._lock:
            self._injections.append(injection)

    def noting(self, injection: Injection, listener: Listener) -> InjectionListener:
        """A listener of its request: adds it once the jail has it, closes it when the jail refuses."""
        return InjectionListener(listener, lambda: self.add(injection), lambda: self._let_go(injection))

    def all(self) -> list[Injection]:
        with self._lock:
            return list(self._injections)

    # -- injecting again --

    def keeps(self, content: str) -> bool:
        """Whether the injection of this content can be made again."""
        with self._lock:
            return bool(self._history.values.get(content)) or any(self._held(content))

    def find(self, content: str) -> Injection | None:
        """The injection of this content, for the caller to close; None if it is gone."""
        with self._lock:
            for held in self._held(content):
                return _again(held)
        data = self._history.values.get(content)
        if not data:
            return None
        injection = from_bytes(data)
        injection.content = content
        return injection

    def _held(self, content: str) -> Iterator[Injection]:
        return (each for each in (*self._injections, *self._former) if content and each.content == content)

    @property
    def start(self) -> HistoryStart:
        """What the history begins with."""
        return start_of(self._history, self.all(), self.keeps)

    def first(self) -> list[Injection]:
        """The available injections of the start, in order, for the caller to close."""
        found = [self.find(each) if isinstance(each, str) else _again(each) for each in self.start.beginnings]
        return [each for each in found if each is not None]

    def recorded_stubs(self) -> frozenset[str]:
        """Shared names that begin as stubs of what the history itself has recorded. A version of one is that of the
        code that makes stubs, which differs between versions of Cenote.
        """
        stubs: set[str] = set()
        for each in self.start.beginnings:
            if isinstance(each, str) and (found := self.find(each)) is not None:
                with closing(found):
                    if not found.seat.private:
                        stubs.difference_update(found.names)
                        stubs.update(host.name for host in found.hosts)
            elif isinstance(each, Injection):
                stubs.difference_update(each.names)
        return frozenset(stubs)

    def former(self) -> list[Injection]:
        """The replaced injections that are still stored, for the caller to close."""
        with self._lock:
            return [_again(each) for each in self._former]

    def sweep(self) -> None:
        """Marks in the history the values that another process had stored, and that are gone."""
        for content in self._history.values_elsewhere:
            if not self.keeps(content):
                self._history.value_gone(content)

    def close(self) -> None:
        """The runtime is closed, or another process has it."""
        with self._lock:
            for injection in (*self._injections, *self._former):
                injection.close()


def _again(injection: Injection) -> Injection:
    """A copy for one more jail; no bytes are copied."""
    return replace(injection, values=injection.values.duplicate(), number=0, step=START)
