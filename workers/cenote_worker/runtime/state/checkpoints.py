"""The checkpoints of one runtime: making them, ending a jail that has one, filling the next jail from it.

A durable runtime delays its answers until the state that they report is stored, see `acknowledger.py`.
A checkpoint that was asked for has an image of the process as well, see `images.py`; what is stored after each call
has one once the runtime is idle.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from cenote_security.errors import (
    CenoteError,
    EntryExistsError,
    QuotaExceededError,
    UnavailableError,
    UsageError,
)
from cenote_security.printable import printable
from cenote_worker.checkpoints import restoring
from cenote_worker.checkpoints.errors import (
    IncompleteRestoreError,
    OtherEnvironmentError,
    StoreFailedError,
)
from cenote_worker.checkpoints.fidelity import fidelity
from cenote_worker.checkpoints.manifest import Dealings, Manifest
from cenote_worker.checkpoints.restoring import Restoration
from cenote_worker.checkpoints.state import Rebuild, State, StoredPart, Unkept
from cenote_worker.checkpoints.store import CheckpointInfo, CheckpointStore
from cenote_worker.checkpoints.writer import CheckpointDraft, CheckpointWriter
from cenote_worker.history.step import START
from cenote_worker.process.patient_wait import PatientWait
from cenote_worker.runtime.injection import offers_of
from cenote_worker.runtime.runtime import NOWHERE, HostedRuntime
from cenote_worker.runtime.snapshots import check_label
from cenote_worker.runtime.state.acknowledger import Acknowledger, DurableListener
from cenote_worker.runtime.state.branches import BUSY, LOOK_EVERY, QUIET_SECONDS
from cenote_worker.runtime.state.image_seals import ImageSeals, own_seals
from cenote_worker.runtime.state.images import PATIENCE, ProcessImages, Room
from cenote_worker.runtime.state.rebuild import RebuildPlans, StateRestore
from cenote_worker.runtime.state.state_source import Source, StateSource, arrival_of
from cenote_worker.runtime.state.stored_states import StoredStates
from cenote_worker.runtime.state.transfer import collected
from cenote_worker.supervisor.requests import Listener
from cenote_worker.supervisor.supervisor import Supervisor

REST_SECONDS: Final = 2.0
"""Seconds without a change after which a durable runtime's process is stored as well."""

_SHARE: Final = 20
"""That takes one part in so many of the time, at most: after a long one the runtime has to be idle for longer."""

KEEP: Final = 8
"""Checkpoints without a label that a durable or sleeping runtime stores; older ones are swept."""

_SWEEP_EVERY = 16

MAX_SETTLED: Final = 64
"""Keyed calls in a checkpoint: clients repeat those that were under way when their connection broke."""


def _is_full(error: StoreFailedError | QuotaExceededError) -> bool:
    """Whether it would be gone if less was stored."""
    cause = error.__cause__
    full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, QuotaExceededError)


def _nothing() -> None:
    """Nothing is asked meanwhile."""


def _boundless(_size: int) -> AbstractContextManager[None]:
    return nullcontext()


class Checkpoints:
    """Of one runtime, under a name in a store. It is the runtime's StateSource. Safe to use from several threads.

    durable: every change is stored before its client gets the outcome.
    Raises StoreBusyError when the name has a writer, EntryExistsError when it has checkpoints and none is restored.
    """

    def __init__(
        self,
        runtime: HostedRuntime,
        store: CheckpointStore,
        name: str,
        *,
        durable: bool = False,
        base: Manifest | None = None,
        partial: bool = False,
        added: Iterable[str] = (),
        ahead: bool = True,
        room: Room = _boundless,
        seals: ImageSeals | None = None,
        missing: tuple[str, ...] = (),
    ) -> None:
        """base: the checkpoint that the runtime begins with. partial: unreadable parts of it may be left out.

        added: names of injected things that stay if the checkpoint does not have them. ahead: whether it is read, and
        refused if it is damaged, now instead of when it fills a jail. room: called before anything more is stored.
        seals: of images; by default with the user's key. missing: what it would lack by value, so that it has to
        begin with the image of the base: raises IncompleteRestoreError where there is none that has all.
        """
        self.store = store
        self.name = name
        self.durable = durable
        self._runtime = runtime
        self._room = room
        self._pid = os.getpid()
        self._making = threading.Lock()
        self._acknowledger = Acknowledger(
            self._secure, self._settle, self._imaged_at_rest, self._rest_seconds
        )
        self._settled: dict[str, int] = {}
        """See Dealings; changed and read with `_settling`."""
        self._settling = threading.Lock()
        self._asleep: Supervisor | None = None
        """The supervisor of the jail that was put to sleep last: its whole state is stored."""
        self._wakeful = NOWHERE
        """The state that was found not to be restored in full: it is not stored again to see that."""
        self._unstored = False
        """Set until the next stored state, after a client was informed that a call's effect is not stored."""
        self._base = base
        self._partial = partial
        self._by_image = base.number if base is not None and missing else 0
        """The checkpoint that no jail may begin with by value."""
        self._made: tuple[Supervisor, tuple[int, int]] | None = None
        """The jail and the state that the last checkpoint was made of."""
        self._added = tuple(added)
        self._unkept: frozenset[Unkept] = frozenset()
        self._ready: Restoration | None = None
        self._plans = RebuildPlans(runtime)
        self._states = StoredStates(runtime, store, name, base)
        self.processes = ProcessImages(runtime, store.folder(name), room, seals or own_seals(name))
        self._writer = CheckpointWriter(self.store, name, base)
        try:
            if base is None and self.store.folder(name).numbers():
                raise EntryExistsError("stored runtime", name)
            if base is not None:
                if missing and self.processes.lacking(base) != ():
                    raise IncompleteRestoreError(name, base.number, missing)
                self._ready = self._read(base) if ahead else None
                self._go_on_from(base)
        except BaseException:
            self._writer.close()
            raise
        runtime.refill = self

    def _go_on_from(self, base: Manifest) -> None:
        self._runtime.count_on(max(base.step, base.state.message.step, self._runtime.step), None)
        if base.step not in self._runtime.history.tree:
            self._runtime.recorder.went_unrecorded(base.step)
        self._unkept = frozenset(base.unbuilt)
        self._settled.update(base.dealings.settled)
        for key, step in base.dealings.settled.items():
            self._runtime.calls.restore_key(key, step)

    # -- making --

    def make(self, label: str = "") -> CheckpointInfo:
        """Stores the state as it is when the cells that were sent before are over. The next one does not wait for it.

        The process is stored beside it, where that is possible, and may be so a little later; not if the state by
        value lacks something, or has to run steps again for it.
        Raises UsageError for an invalid label, CheckpointError, and what `HostedRuntime.start` raises.
        """
        check_label(label)
        with self._making:
            return self._writer.describe(self._make_exactly(self._runtime.started(), label))

    def _secure(self, supervisor: Supervisor) -> tuple[str, ...]:
        """Stores the state of that jail, and of no other: one that was filled since lacks its changes. The record of
        its steps is written too.

        Returns a line for each object that cannot be stored and could be, or did not exist, until now.
        """
        with self._making:
            if supervisor is self._asleep:
                return ()
            before = self._unkept
            self._store(supervisor)
            return tuple(
                f"`{printable(thing.name)}` is not durable: {printable(thing.reason)}"
                for thing in sorted(self._unkept - before, key=lambda thing: thing.name)
            )

    def _store(self, supervisor: Supervisor) -> None:
        self._unstored = True
        manifest = self._make(supervisor, "")
        self._unstored = False
        # A history reports its own write errors whenever it is flushed; the state is stored.
        with suppress(CenoteError):
            self._runtime.history.flush()
        self._tidy(manifest)

    def hibernate(self, *, partial: bool) -> CheckpointInfo:
        """Stores the state, with an image of the process where that is possible, and ends the jail; the next call
        fills another jail with it.

        Raises IncompleteRestoreError, and then the jail goes on, when something would be missing and not `partial`.
        """
        with self._making:
            supervisor = self._runtime.started()
            manifest = self._make(supervisor, "")
            missing = fidelity(manifest, manifest.state.message.hosts).missing
            if missing and not partial:
                raise IncompleteRestoreError(self.name, manifest.number, missing)
            self.processes.begin(manifest, self.processes.copy_of(supervisor), partial=partial)
            self.processes.finish()
            self._runtime.sleep()
            return self._writer.describe(manifest)

    def rest(self) -> None:
        with self._making:
            supervisor, state = self._runtime.supervisor, self._runtime.state
            if supervisor is None or supervisor.death is not None:
                return
            self._check_quiet(supervisor)
            seen = self._base if state == self._wakeful else None
            manifest = seen or self._make(supervisor, "")
            missing = fidelity(manifest, manifest.state.message.hosts).missing
            if missing:
                self._wakeful = state
                raise IncompleteRestoreError(self.name, manifest.number, missing)
            self.processes.begin(manifest, self.processes.copy_of(supervisor), partial=False)
            self.processes.finish()
            self._check_quiet(supervisor, QUIET_SECONDS)
            if not self._runtime.doze(supervisor, state):
                raise UnavailableError(BUSY)
            self._asleep = supervisor
            self._tidy(manifest)

    def go_back(self, checkpoint: int | str) -> CheckpointInfo:
        """Goes on from an earlier one, by number or label; the present state is stored before it.

        Raises UnknownEntryError, CheckpointDamagedError, IncompleteRestoreError, and UnavailableError while any call
        is under way: then nothing has changed except the stored checkpoints.
        """
        former = self.store.manifest(self.name, checkpoint)
        missing = fidelity(former, former.state.message.hosts).missing
        if missing and self.processes.lacking(former) != ():
            raise IncompleteRestoreError(self.name, former.number, missing)
        with self._making:
            supervisor, state = self._runtime.started(), self._runtime.state
            self._check_quiet(supervisor)
            self._make_exactly(supervisor, "", former.number)
            self.processes.finish()
            self._check_quiet(supervisor, QUIET_SECONDS)
            ready, present = self._read(former), self._base
            self._base, self._ready, self._by_image = former, ready, former.number if missing else 0
            if not self._runtime.doze(supervisor, state):
                self._forget_ready()
                self._base = present
                raise UnavailableError(BUSY)
            self._asleep, self._unstored = supervisor, True
            again = self._make_exactly(self._started_from(former, present), "")
            self._unstored = False
            return self._writer.describe(again)

    def _check_quiet(self, supervisor: Supervisor, patience: float = 0.0) -> None:
        """Raises UnavailableError while a call is under way. patience: seconds to wait for its end; a jail that was
        asked for an image has soon answered.
        """
        wait = PatientWait(QUIET_SECONDS if self.processes.busy else patience)
        while supervisor.busy:
            if not wait.piece():
                raise UnavailableError(BUSY)
            time.sleep(LOOK_EVERY)

    def _started_from(self, former: Manifest, present: Manifest | None) -> Supervisor:
        """A jail that is filled with a former state; the next one has the present again if that fails."""
        try:
            return self._runtime.started()
        except BaseException:
            if self._base is former:
                self._forget_ready()
                self._base, self._unstored = present, False
            raise

    def last(self) -> CheckpointInfo:
        """The checkpoint that the next jail begins with. Raises UsageError when nothing is stored."""
        with self._making:
            if self._base is None:
                raise UsageError("nothing of this runtime is stored yet")
            return self._writer.describe(self._base)

    def _tidy(self, manifest: Manifest) -> None:
        """Sweeps from time to time: checkpoints that were made after calls are not requested by their numbers."""
        if manifest.number % _SWEEP_EVERY == 0:
            self._writer.sweep(KEEP)

    def _settle(self, key: str, step: int) -> None:
        with self._settling:
            self._settled.pop(key, None)
            self._settled[key] = step
            while len(self._settled) > MAX_SETTLED:
                del self._settled[next(iter(self._settled))]

    def _make_exactly(self, supervisor: Supervisor, label: str, *beside: int) -> Manifest:
        """Makes a checkpoint with an image of its process. beside: checkpoints that keep theirs, too."""
        with closing(self.processes.copy_of(supervisor)) as copy:
            manifest = self._make(supervisor, label, *beside, meanwhile=copy.ask)
            missing = fidelity(manifest, manifest.state.message.hosts).missing
            self.processes.begin(manifest, copy, partial=bool(missing))
        if manifest.state.unkept:
            self.processes.finish()
        return manifest

    def _make(
        self, supervisor: Supervisor, label: str, *beside: int, meanwhile: Callable[[], None] = _nothing
    ) -> Manifest:
        """Makes a checkpoint by value. Images give way to it where there is no room for both.

        meanwhile: called while the jail is at it, more than once where it has to be made again.
        """
        try:
            return self._made_by_value(supervisor, label, beside, meanwhile)
        except (StoreFailedError, QuotaExceededError) as error:
            if not (_is_full(error) and self.processes.give_way()):
                raise
            return self._made_by_value(supervisor, label, beside, meanwhile)

    def _made_by_value(
        self, supervisor: Supervisor, label: str, beside: Iterable[int], meanwhile: Callable[[], None]
    ) -> Manifest:
        self.processes.supersede()
        draft = self._writer.begin()
        try:
            told, made = self._runtime.rerunning().telling(), (supervisor, self._runtime.state)
            state, head, rebuild, record = self._collected(draft, supervisor, meanwhile)
            with self._room(draft.fresh):
                dealings, whole = self._dealings(head), told.holds(head)
                manifest = self._writer.publish(
                    draft,
                    state,
                    label,
                    dealings,
                    rebuild,
                    record,
                    whole=whole,
                    environment=self._environment(),
                )
        finally:
            draft.discard()
        self.processes.keep_only(manifest, *beside)
        self._forget_ready()
        self._states.made(manifest)
        self._base, self._added, self._made = manifest, (), made
        self._unkept = frozenset(manifest.unbuilt)
        return manifest

    def _imaged_at_rest(self) -> bool:
        """Has the process stored beside the last checkpoint, if it is still in that state. Waits for nothing."""
        if self.processes.busy or not self._making.acquire(blocking=False):
            return False
        try:
            base, supervisor, state = self._base, self._runtime.supervisor, self._runtime.state
            if base is None or supervisor is None or supervisor.death is not None or supervisor.busy:
                return True
            if (supervisor, state) == self._made and self.processes.lacking(base) is None:
                missing = fidelity(base, base.state.message.hosts).missing
                self.processes.begin(base, self.processes.copy_of(supervisor), partial=bool(missing))
            return True
        finally:
            self._making.release()

    def _rest_seconds(self) -> float:
        return max(REST_SECONDS, _SHARE * self.processes.seconds)

    def _dealings(self, head: int) -> Dealings:
        with self._settling:
            settled = dict(self._settled)
        return Dealings(settled=settled, offers=offers_of(self._runtime.noted.all()), head=head)

    def _collected(
        self, draft: CheckpointDraft, supervisor: Supervisor, meanwhile: Callable[[], None]
    ) -> tuple[State, int, Rebuild, StoredPart | None]:
        """The state, the step whose end it is, and the plan and record that rebuild what is not in it."""
        try:
            state, head = collected(self._runtime, supervisor, draft, meanwhile)
            return state, head, *self._plans.plan(state, head, draft)
        except OSError as error:
            place = self.store.folder(self.name).place
            raise StoreFailedError(place, error.strerror or str(error)) from error

    # -- being the runtime's StateSource --

    stores = True

    @property
    def begins_with(self) -> str:
        if self._base is None:
            return ""
        number, step = self._base.number, self._base.step
        return f"the next cell starts from checkpoint {number}, the state after step {step}"

    @property
    def step(self) -> int:
        return self._base.step if self._base is not None else START

    @property
    def arrival(self) -> str:
        return arrival_of(self._runtime.carried)

    @property
    def exact(self) -> bool:
        return self.is_current and not self._unstored

    @property
    def is_current(self) -> bool:
        return self.durable and not self._runtime.rerunning().under_way

    def acknowledging(self, listener: Listener, source: Source, key: str) -> Listener:
        return DurableListener(listener, self._acknowledger, source, key) if self.durable else listener

    def fill(self, supervisor: Supervisor, inject: Callable[[], None]) -> None:
        base = self._base
        if base is None:
            self._runtime.carried = None
            inject()
            return
        files = partial(restoring.read_files, self.store, self.name, base)
        carried = self.processes.wake(base, supervisor, inject, files, self._added)
        if carried.how == "exact":
            self._runtime.carried = carried
            return
        missing = fidelity(base, base.state.message.hosts).missing
        if missing and base.number == self._by_image:
            raise IncompleteRestoreError(
                self.name, base.number, (*missing, f"the image that has it: {carried.reason}")
            )
        ready = self._ready or self._read(base)
        self._ready = None
        filling = StateRestore(self._runtime, ready, self.name, partial=self._partial)
        try:
            filling.carry_out(supervisor, inject)
        finally:
            ready.close()
            self._runtime.earlier = filling.line or self._runtime.earlier
        missing += filling.missing
        self._runtime.carried = replace(carried, missing=missing, differing=filling.differing)
        self._states.began(base.step)

    def stored(self) -> Mapping[int, int]:
        return self._states.at()

    def rebuilt(self, step: int) -> frozenset[str]:
        return self._states.rebuilt(step)

    def beginning(self, step: int) -> StateSource:
        return self._states.beginning(step)

    def goes_on_from(self, step: int) -> None:
        self._states.began(step)

    def forget(self) -> None:
        self._forget_ready()
        self._base, self._runtime.earlier = None, None

    def began_anew(self) -> None:
        if self.durable or self.store.folder(self.name).numbers():
            with self._making:
                self._store(self._runtime.started())

    def worked(self) -> None:
        if self.durable:
            self.began_anew()

    def finish(self) -> None:
        if self._pid == os.getpid():
            self.processes.finish(PATIENCE)

    def close(self) -> None:
        if self._pid == os.getpid():
            self._acknowledger.close()
            self.processes.close()
            with self._making:
                self._forget_ready()
                self._writer.close()

    def _read(self, base: Manifest) -> Restoration:
        if base.environment != (environment := self._environment()):
            raise OtherEnvironmentError(self.name, base.number, base.environment, environment)
        return restoring.read(self.store, self.name, base, partial=self._partial, added=self._added)

    def _environment(self) -> str:
        """The digest of the environment of the runtime's jails, empty for none."""
        return str(self._runtime.pin().environment or "")

    def _forget_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()
