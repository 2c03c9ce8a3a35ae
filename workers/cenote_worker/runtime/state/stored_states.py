"""Which checkpoints of a runtime contain the state after a step of its history, and jails that begin with one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cenote_security.errors import NotKeptError
from cenote_worker.checkpoints import restoring
from cenote_worker.checkpoints.errors import CheckpointError
from cenote_worker.checkpoints.fidelity import fidelity
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.store import CheckpointStore, failures, whole_manifest
from cenote_worker.history.step import START
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.rebuild import StateRestore
from cenote_worker.runtime.state.state_source import NoStateSource
from cenote_worker.supervisor.supervisor import Supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The facts cached of a manifest, which may be large. step: whose end it is; START where it belongs to none.

    files: see Manifest. missing: whether a part of it cannot be restored, whatever clients provide again.
    rebuilt: names that are restored by running steps again. hosts: names that clients have to provide.
    """

    number: int
    parent: int
    fence: int
    step: int
    files: frozenset[int]
    missing: bool
    rebuilt: frozenset[str]
    hosts: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> _Known:
        hosts = frozenset(manifest.state.message.hosts)
        return cls(
            number=manifest.number,
            parent=manifest.parent,
            fence=manifest.fence,
            step=manifest.dealings.head if manifest.whole else START,
            files=manifest.files,
            missing=bool(fidelity(manifest, hosts).missing),
            rebuilt=frozenset(manifest.rebuild.names),
            hosts=hosts,
        )


class StoredStates:
    """Of one runtime, under a name in a store. Safe to use from several threads."""

    def __init__(
        self, runtime: HostedRuntime, store: CheckpointStore, name: str, base: Manifest | None
    ) -> None:
        """base: the checkpoint that the runtime begins with."""
        self._runtime = runtime
        self._store = store
        self._name = name
        self._lock = threading.Lock()
        self._newest = _Known.of(base) if base is not None else None
        self._known: dict[int, _Known | None] = {}
        self._began: set[int] = set()
        """Steps after which a jail of the runtime began with a stored state."""

    def made(self, manifest: Manifest) -> None:
        """Adds a checkpoint of this runtime."""
        with self._lock:
            self._newest = self._known[manifest.number] = _Known.of(manifest)

    def began(self, step: int) -> None:
        """The runtime's jail, from now on, began with the stored state after this step."""
        with self._lock:
            self._began.add(step)

    def at(self) -> Mapping[int, int]:
        """Steps whose end states can be restored, each with the last step up to it that was passed to `began`, or
        START.

        The untraced effects of steps before that one are as in any jail that begins with this state. Blocks while
        manifests are read; unreadable ones are left out.
        """
        tree = self._runtime.history.tree
        with self._lock:
            try:
                steps = {known.step for known in self._usable()}
            except CheckpointError:
                return {}
            began = set(self._began)
        lines = {step: {record.number for record in tree.line(step)} for step in steps if step in tree}
        return {step: max(began & line, default=START) for step, line in lines.items()}

    def rebuilt(self, step: int) -> frozenset[str]:
        """Names that the state after the step gets by running steps again."""
        known = self._at(step)
        return known.rebuilt if known is not None else frozenset()

    def beginning(self, step: int) -> StoredBeginning:
        """A source that fills a jail with the state after this step. Raises NotKeptError, CheckpointError."""
        if (known := self._at(step)) is None:
            raise NotKeptError(step)
        manifest = self._store.manifest(self._name, known.number)
        return StoredBeginning(self._runtime, self._store, self._name, manifest)

    def _at(self, step: int) -> _Known | None:
        """The newest with the state after this step. Raises CheckpointError."""
        with self._lock:
            return next((known for known in self._usable() if known.step == step), None)

    def _usable(self) -> list[_Known]:
        """Newest first. Raises CheckpointError."""
        folder = self._store.folder(self._name)
        with failures(folder.place):
            numbers = frozenset(folder.numbers())
            newest = self._newest
            if newest is None:
                return []
            for number in numbers - self._known.keys():
                manifest = whole_manifest(folder, number) if number <= newest.number else None
                self._known[number] = _Known.of(manifest) if manifest is not None else None
        given = {name for each in self._runtime.noted.all() for name in each.names}
        there = {number: known for number in numbers if (known := self._known[number]) is not None}
        return [
            known
            for known in _lineage(newest, there)
            if known.step != START and not known.missing and known.files <= numbers and known.hosts <= given
        ]


def _lineage(newest: _Known, there: Mapping[int, _Known]) -> list[_Known]:
    """Checkpoints of the runtime that made the newest, and of those that it continues; newest first.

    Their step numbers belong to one history. Those of others under the same name may not: a runtime can continue from
    an older checkpoint, and its next step has a number that another line has given, too.
    """
    found = list[_Known]()
    last: _Known | None = newest
    while last is not None:
        fence, until = last.fence, last.number
        theirs = [one for one in there.values() if one.fence == fence and one.number <= until]
        found += sorted(theirs, key=lambda one: one.number, reverse=True)
        last = there.get(found[-1].parent) if theirs else None
    return found


class StoredBeginning(NoStateSource):
    """The StateSource of a jail that begins with one of them, and whose states are not stored."""

    def __init__(self, runtime: HostedRuntime, store: CheckpointStore, name: str, manifest: Manifest) -> None:
        self._runtime = runtime
        self._store = store
        self._name = name
        self._manifest = manifest
        self.step = manifest.dealings.head

    def fill(self, supervisor: Supervisor, inject: Callable[[], None]) -> None:
        ready = restoring.read(self._store, self._name, self._manifest, partial=False)
        try:
            StateRestore(self._runtime, ready, self._name, partial=False).carry_out(supervisor, inject)
        finally:
            ready.close()
