"""A warden's store of former states of its worker, in frozen copies. Messages of the worker about them are checked.

When there are too many, old states are kept sparsely and recent ones densely.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cenote_worker.jail.snapshots.protocol import LIVE, Message, number, receive, send
from cenote_worker.process.patient_wait import is_ready
from cenote_worker.zygote.processes import StartTime, private_memory, start_time_of
from cenote_worker.zygote.worker_start import InitialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """step: the step after which it was taken. labelled: a client has given it a label."""

    step: int
    labelled: bool = False


def expendable(candidates: Sequence[Candidate]) -> int | None:
    """Index of the one to give up first; None when there is no choice. candidates: oldest first.

    The newest is what a crash falls back to. The first, the state that everything began with, goes late, and one
    with a label later still. Of the others, the one goes whose removal leaves the smallest gap for its age: so their
    distances grow with their age, as in the tower of Hanoi scheme for backups.
    """
    if len(candidates) < 2:
        return None
    inner = range(1, len(candidates) - 1)
    choice = [index for index in inner if not candidates[index].labelled]
    if choice:
        return min(choice, key=lambda index: _gap_for_age(candidates, index))
    return 0 if not candidates[0].labelled else min(range(len(candidates) - 1))


def _gap_for_age(candidates: Sequence[Candidate], index: int) -> float:
    newest = candidates[-1].step
    gap = candidates[index + 1].step - candidates[index - 1].step
    return gap / (newest - candidates[index].step + 1)


MOST: Final = 8
"""States kept of one worker at once. Each may need a process, which has page tables of its own."""

MORE: Final = 4
"""States kept in addition while some are held: room for the results of the work that they are held for."""

MOST_LABELS: Final = 8
"""Of one state."""

WAKE_SECONDS: Final = 5.0
"""A copy that has not answered by then never will: forking 10 GB takes a tenth."""


END_SECONDS: Final = 0.1
"""The longest wait of a cell for the end of the copies that it would pay for: they take 2 ms per gigabyte to end."""


@dataclass(slots=True, eq=False, kw_only=True)
class Copy:
    """One frozen process. line: the socket to it."""

    pid: int
    line: socket.socket

    def wake(self, then: Message) -> int | None:
        """The pid of a process that continues from here as the worker; None when the copy is broken.

        It may be the copy's own pid, which is then not a copy any more. then: further fields of the message to it.
        """
        try:
            os.kill(self.pid, signal.SIGCONT)  # in case another process has stopped it
            self.line.settimeout(WAKE_SECONDS)
            send(self.line, {"op": LIVE, **then})
            heard = receive(self.line) if is_ready(self.line, WAKE_SECONDS) else None
            pid = 0 if heard is None else number(heard.message, "pid")
        except (OSError, ValueError):
            return None
        return pid if pid == self.pid or is_child(pid) else None

    def lend(self, line: socket.socket, then: Message) -> None:
        """Has a fork of the copy answer at the other end of `line`. Does not wait."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGCONT)
            self.line.settimeout(0)
            send(self.line, {"op": "lend", **then}, line)

    @property
    def memory(self) -> int:
        """Bytes that would be free without it."""
        return private_memory(self.pid)

    def end(self) -> None:
        self.close()
        self.kill()

    def close(self) -> None:
        """Closes the socket: the copy has ended, or is the worker now."""
        self.line.close()

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)

    def await_end(self, deadline: float) -> None:
        """Waits for the end of a killed copy: a process closes its sockets after it has freed its memory."""
        self.line.settimeout(max(deadline - time.monotonic(), 0))
        with suppress(OSError):
            self.line.recv(1)


@dataclass(slots=True, eq=False, kw_only=True)
class SavedState:
    """A state to which a rollback is possible: that of a copy, or that of a copy with some bindings applied.

    parent: the worker's previous state when it reported this one, or the nearest ancestor that is kept.
    born: a process that began later is not part of it. files: the version of the working directory that belongs to
    it, 0 for none. bindings: as packed by the worker, for the process that continues from here; empty for the copy's
    own state.
    """

    step: int
    copy: Copy | InitialState
    born: StartTime
    parent: SavedState | None
    files: int = 0
    bindings: str = ""
    labels: list[str] = field(default_factory=list)

    def wake(self, cpu: int = 0, *, is_parked: bool = False) -> int | None:
        """See `Copy.wake`. is_parked: the worker was only suspended, and the files are as they should be.

        cpu: microseconds of processor time used by earlier workers.
        """
        told = {**self._then, "cpu": cpu}
        return self.copy.wake({**told, "parked": True} if is_parked else told)

    def lend(self, line: socket.socket) -> None:
        """See `Copy.lend`."""
        self.copy.lend(line, self._then)

    @property
    def _then(self) -> Message:
        told: Message = {"step": self.step, "files": self.files}
        return {**told, "bindings": self.bindings} if self.bindings else told


class SnapshotStore:
    """At most one state of a step. base: the one that the running cell began with, or the nearest before that.

    A copy ends with the last state that depends on it. Thinning spares held states; `keep_base`, which frees memory,
    does not.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._states: list[SavedState] = []
        self._newest = 0
        self._held: frozenset[int | str] = frozenset()
        self._begun = most < 1
        """Whether something was kept already, or nothing ever will be."""
        self.base: SavedState | None = None

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(state.copy.pid for state in self._states if isinstance(state.copy, Copy))

    def find(self, step: int) -> SavedState | None:
        return next((state for state in self._states if state.step == step), None)

    def labelled(self, label: str) -> SavedState | None:
        return next((state for state in self._states if label in state.labels), None)

    @property
    def spare_copy(self) -> Copy | None:
        """The copy that the base depends on, if it may be given up. While it stays, ending others gains nothing.

        Nothing is gained either where the base is the worker's initial state.
        """
        copy = None if self.base is None else self.base.copy
        return copy if isinstance(copy, Copy) and copy.pid not in self._wanted else None

    @property
    def is_at_beginning(self) -> bool:
        """Whether the base is the worker's initial state, perhaps with some bindings: no copy of it is kept."""
        return self.base is not None and isinstance(self.base.copy, InitialState)

    @property
    def files(self) -> dict[str, object]:
        """The versions of the working directory that are still needed, for the worker, which keeps them."""
        return {"files": sorted({state.files for state in self._states}), "newest": self._newest}

    def add(self, pid: int, step: int, files: int, line: socket.socket) -> None:
        """A worker reports a copy of itself. Ignored if the copy is not a child of this process."""
        if self._most < 1 or pid in self.pids or not is_child(pid):
            line.close()
            return
        self._keep(Copy(pid=pid, line=line), step, files, start_time_of(pid))

    def add_beginning(self, worker: int, step: int, files: int) -> bool:
        """The first worker reports that it is still in its initial state. False once anything else is kept."""
        if self._begun:
            return False
        self._keep(InitialState(), step, files, start_time_of(worker))
        return True

    def _keep(self, copy: Copy | InitialState, step: int, files: int, born: StartTime) -> None:
        self._begun = True
        self._newest = max(self._newest, files)
        self._put(SavedState(step=step, copy=copy, born=born, parent=self.base, files=files))

    def bind(self, pid: int, step: int, born: StartTime, files: int, bindings: str) -> bool:
        """A worker reports that its state is its latest copy with these bindings. False if that copy is not kept.

        born, files: see `SavedState`. Other processes of the jail may have started further ones since the copy.
        """
        base = self.base
        if base is None or base.copy.pid != pid or not bindings:
            return False
        self._newest = max(self._newest, files)
        self._put(
            SavedState(step=step, copy=base.copy, born=born, parent=base, files=files, bindings=bindings)
        )
        return True

    def _put(self, state: SavedState) -> None:
        former = self.find(state.step)
        self.base = state
        self._states.append(state)
        if former is not None:
            state.labels = former.labels
            self.drop(former)
        self._thin()

    def lend(self, step: int, line: socket.socket) -> None:
        """Lends the state of a step; if none is kept, the line is closed at once."""
        with line:
            state = self.find(step)
            if state is not None:
                state.lend(line)

    def hold(self, targets: Iterable[int | str]) -> None:
        """Holds the states of these steps and labels until the next call. Surplus ones go with the next state."""
        self._held = frozenset(targets)

    def name(self, step: int, label: str) -> None:
        """Labels a state. A label names one state: it moves from any other. Of too many, the state's oldest goes."""
        named, state = self.labelled(label), self.find(step)
        if named is not None:
            named.labels.remove(label)
        if state is not None:
            state.labels = [*state.labels[1 - MOST_LABELS :], label]

    def drop(self, state: SavedState) -> None:
        """Removes a state. Its children get its parent."""
        self._remove(state)
        if all(other.copy.pid != state.copy.pid for other in self._states):
            state.copy.end()

    def forget(self, pid: int) -> None:
        """A child is the worker now, or has ended: it is not a copy any more."""
        for state in tuple(self._states):
            if state.copy.pid == pid:
                self._remove(state)
                state.copy.close()

    def give_up(self, copy: Copy | InitialState) -> None:
        """Removes a broken copy, and all states that depend on it."""
        for state in tuple(self._states):
            if state.copy is copy:
                self.drop(state)
        # It had ended before the rollback to it.
        while self.base is not None and self.base.copy is copy:
            self.base = self.base.parent

    def clear(self, but: Copy | InitialState | None = None) -> None:
        """Gives up all states that are neither labelled nor held. but: a copy that stays."""
        wanted = self._wanted
        for state in tuple(self._states):
            if state.copy is not but and state.copy.pid not in wanted:
                self.drop(state)

    def thin(self) -> None:
        """As `clear`, but keeps the base, and the states that share its copy."""
        self.clear(but=None if self.base is None else self.base.copy)

    def forgo(self) -> list[int]:
        """As `clear`, if that gives the base up; waits until the memory of those copies is free. The steps whose
        states are gone, in order.
        """
        if self.spare_copy is None:
            return []
        before = {state.step for state in self._states}
        wanted = self._wanted
        copies = (state.copy for state in self._states if isinstance(state.copy, Copy))
        going = {copy.pid: copy for copy in copies if copy.pid not in wanted}
        for copy in going.values():
            copy.kill()
        deadline = time.monotonic() + END_SECONDS
        for copy in going.values():
            copy.await_end(deadline)
        self.clear()
        return sorted(before.difference(state.step for state in self._states))

    def keep_base(self) -> None:
        """Gives up all states but the base, to which a crash falls back."""
        for state in tuple(self._states):
            if state is not self.base:
                self.drop(state)

    def told(self) -> list[dict[str, object]]:
        """The kept states, oldest step first; one with several labels once for each.

        memory: bytes free without it; a copy counts for its first state, a state with its first label.
        """
        memory = {state: len(state.bindings) for state in self._states}
        for state in {state.copy.pid: state for state in reversed(self._states)}.values():
            memory[state] += state.copy.memory
        return [
            {"step": state.step, "label": label, "memory": 0 if index else memory[state]}
            for state in sorted(self._states, key=lambda state: state.step)
            for index, label in enumerate(state.labels or [""])
        ]

    def _remove(self, state: SavedState) -> None:
        self._states.remove(state)
        for other in self._states:
            if other.parent is state:
                other.parent = state.parent
        if self.base is state:
            self.base = state.parent

    def _thin(self) -> None:
        """Thins states; the base stays, whatever its age. A later state may have a smaller step than a former one."""
        most = self._most + (MORE if self._held else 0)
        while len(self._states) > most and (others := self._expendable()):
            candidates = [Candidate(step=state.step, labelled=bool(state.labels)) for state in others]
            self.drop(others[expendable(candidates) or 0])

    def _expendable(self) -> list[SavedState]:
        """States that may be given up, oldest step first."""
        others = [state for state in self._states if state is not self.base and not self._is_held(state)]
        return sorted(others, key=lambda state: state.step)

    @property
    def _wanted(self) -> frozenset[int]:
        """Pids of copies with a labelled or held state."""
        return frozenset(state.copy.pid for state in self._states if state.labels or self._is_held(state))

    def _is_held(self, state: SavedState) -> bool:
        return not self._held.isdisjoint((state.step, *state.labels))


def is_child(pid: int) -> bool:
    """Whether a process, living or dead, is a child of this one."""
    if pid < 1:  # has another meaning to the kernel, or none
        return False
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, OverflowError):
        return False
    return True
