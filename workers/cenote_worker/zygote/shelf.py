"""The frozen copies of a worker, as its warden keeps them. What a worker says of them is checked, and bounded."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cenote_worker.in_jail.snapshots.line import hear, number, say
from cenote_worker.zygote.strays import Birth, birth_of
from cenote_worker.zygote.thinning import Candidate, expendable
from cenote_worker.zygote.usage import private_memory

MOST: Final = 8
"""Copies kept of one worker at once. Each is a process, and has page tables of its own."""

MORE: Final = 4
"""Kept besides while some are held: room for what comes of the work that they are held for."""

WAKE_SECONDS: Final = 5.0
"""A copy that has not answered by then never will: forking 10 GB takes a tenth."""


@dataclass(slots=True, eq=False, kw_only=True)
class Copy:
    """One frozen process. line: to it alone. born: everything that began later is no part of its state.

    parent: the copy that the worker had come from when this one was made, or its nearest forebear that is kept.
    files: the version of the working directory that goes with it, 0 for none.
    """

    pid: int
    step: int
    line: socket.socket
    born: Birth
    parent: Copy | None
    files: int = 0
    label: str = ""

    def wake(self) -> int | None:
        """The pid of a process that goes on from here as the worker; None when the copy is broken.

        It may be the copy's own, which is none any more then.
        """
        try:
            os.kill(self.pid, signal.SIGCONT)  # whoever has stopped it
            self.line.settimeout(WAKE_SECONDS)
            say(self.line, {"op": "live"})
            heard = hear(self.line)
            pid = 0 if heard is None else number(heard.message, "pid")
        except (OSError, ValueError):
            return None
        return pid if pid == self.pid or is_child(pid) else None

    def lend(self, line: socket.socket) -> None:
        """Has a fork of the copy answer at the other end of `line`. Nothing is waited for."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGCONT)
            self.line.settimeout(0)
            say(self.line, {"op": "lend"}, line)

    def end(self) -> None:
        self.line.close()
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)


class Shelf:
    """At most one copy of a step. base: of the state that the running cell began with, or the nearest before that.

    Held copies are not thinned away. Memory is a stronger reason than that: `keep_base` gives them up, too.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._copies: list[Copy] = []
        self._newest = 0
        self._held: frozenset[int | str] = frozenset()
        self.base: Copy | None = None

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(copy.pid for copy in self._copies)

    def find(self, step: int) -> Copy | None:
        return next((copy for copy in self._copies if copy.step == step), None)

    def labelled(self, label: str) -> Copy | None:
        return next((copy for copy in self._copies if copy.label == label), None)

    @property
    def files(self) -> dict[str, object]:
        """What is still wanted of the working directory's versions, for the worker that keeps them."""
        return {"files": sorted({copy.files for copy in self._copies}), "newest": self._newest}

    def add(self, pid: int, step: int, files: int, line: socket.socket) -> None:
        """A worker says that it was copied. Refused, that is forgotten, if it is no child of this process."""
        if self._most < 1 or pid in self.pids or not is_child(pid):
            line.close()
            return
        former = self.find(step)
        copy = Copy(pid=pid, step=step, line=line, born=birth_of(pid), parent=self.base, files=files)
        self._newest = max(self._newest, files)
        self.base = copy
        self._copies.append(copy)
        if former is not None:
            copy.label = former.label
            self.drop(former)
        self._thin()

    def lend(self, step: int, line: socket.socket) -> None:
        """Whoever is at the other end hears its end at once when there is no copy of that step."""
        with line:
            copy = self.find(step)
            if copy is not None:
                copy.lend(line)

    def hold(self, targets: Iterable[int | str]) -> None:
        """Those of these steps and labels stay until something else is said. Too many then go with the next copy."""
        self._held = frozenset(targets)

    def name(self, step: int, label: str) -> None:
        """A label names one copy: it moves on to this one."""
        named = self.labelled(label)
        if named is not None:
            named.label = ""
        copy = self.find(step)
        if copy is not None:
            copy.label = label

    def drop(self, copy: Copy) -> None:
        """Ends a copy; those that came from it come from its own parent now."""
        copy.end()
        self.release(copy)

    def release(self, copy: Copy) -> None:
        """The copy itself has become the worker."""
        self._copies.remove(copy)
        for other in self._copies:
            if other.parent is copy:
                other.parent = copy.parent
        if self.base is copy:
            self.base = copy.parent

    def forget(self, pid: int) -> None:
        """A child has ended: if it was a copy, it is none any more."""
        for copy in self._copies:
            if copy.pid == pid:
                self.drop(copy)
                return

    def clear(self) -> None:
        """Gives up all that nobody has asked for, by a label or because it is needed now."""
        for copy in tuple(self._copies):
            if not copy.label and not self._is_held(copy):
                self.drop(copy)

    def keep_base(self) -> None:
        """Gives up all but the one that a crash falls back to."""
        for copy in tuple(self._copies):
            if copy is not self.base:
                self.drop(copy)

    def told(self) -> list[dict[str, object]]:
        """What is kept, oldest step first. memory: bytes that would be free without the copy."""
        return [
            {"step": copy.step, "label": copy.label, "memory": private_memory(copy.pid)}
            for copy in sorted(self._copies, key=lambda copy: copy.step)
        ]

    def _thin(self) -> None:
        """The base stays, whatever its age. A state may get a smaller number than one that was copied before it."""
        most = self._most + (MORE if self._held else 0)
        while len(self._copies) > most and (others := self._expendable()):
            candidates = [Candidate(step=copy.step, labelled=bool(copy.label)) for copy in others]
            self.drop(others[expendable(candidates) or 0])

    def _expendable(self) -> list[Copy]:
        """Oldest step first."""
        others = [copy for copy in self._copies if copy is not self.base and not self._is_held(copy)]
        return sorted(others, key=lambda copy: copy.step)

    def _is_held(self, copy: Copy) -> bool:
        return not self._held.isdisjoint((copy.step, copy.label))


def is_child(pid: int) -> bool:
    """Whether a process, living or dead, is a child of this one."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, OverflowError):
        return False
    return pid > 0
