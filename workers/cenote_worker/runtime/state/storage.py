"""What outlives the processes that serve a platform's runtime: its record, and its stored states."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote_worker.checkpoints.errors import IncompleteRestoreError, StoreFailedError
from cenote_worker.checkpoints.fidelity import fidelity
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.retention import Retention
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.history.event_log import open_log
from cenote_worker.history.history import History
from cenote_worker.runtime.injection import injections_of
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.checkpoints import Checkpoints
from cenote_worker.runtime.state.image_seals import ImageSeals
from cenote_worker.runtime.state.images import Room

RECORD: Final = "history"
"""The file in a runtime's folder that contains its record."""


PLACE: Final = "the platform's store"
"""The name that clients are given for the place of states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStorage(Retention):
    """store: URL of all checkpoints of the runtime's tenant. records: folder with one for each runtime's record;
    empty to have it in memory. Folders of both exist. durable: see Checkpoints. partial: begin without the missing
    parts of a stored state. known: it was served before, so its store knows it.
    """

    store: str = ""
    records: str = ""
    partial: bool = False
    known: bool = False

    def record_of(self, runtime: str) -> History:
        """The record, which continues where it ends. Raises HistoryTakenError while another process writes it."""
        return open_log(Path(self.records) / runtime / RECORD, runtime) if self.records else History()

    def equip(self, hosted: HostedRuntime, room: Room, seals: ImageSeals, *, lives: bool = False) -> None:
        """Makes the runtime store its states as configured from now on, and continue from the last one.

        room, seals: see Checkpoints. lives: it has a jail, or had, in another process. Raises IncompleteRestoreError
        when something would be missing, and not `partial`; CheckpointDamagedError, StoreBusyError, StoreFailedError.
        """
        if not self.stores:
            return
        store = CheckpointStore(self.store, PLACE, must_exist=True)
        if self.durable and self.known and not store.folder(hosted.name).was_claimed():
            raise StoreFailedError(PLACE, "nothing of this runtime is there; it may be kept in another store")
        base = store.manifest(hosted.name) if store.folder(hosted.name).numbers() else None
        missing = self._prepare(hosted, base) if base is not None and not lives else ()
        Checkpoints(
            hosted,
            store,
            hosted.name,
            durable=self.durable,
            base=base,
            partial=self.partial,
            ahead=False,
            room=room,
            seals=seals,
            missing=missing,
        )
        if missing:
            _begin(hosted)
        if not lives:
            hosted.recorder.went_unrecorded(hosted.step)
            if base is not None:
                hosted.recorder.goes_on_from(base.step)

    def begin_with(self, hosted: HostedRuntime, room: Room, seals: ImageSeals) -> None:
        """The same for a runtime that has begun with a state of another. The state of a durable one is stored now."""
        self.equip(hosted, room, seals, lives=True)
        if self.durable:
            hosted.refill.began_anew()

    def _prepare(self, hosted: HostedRuntime, base: Manifest) -> tuple[str, ...]:
        """What the runtime would lack by value, and may not."""
        offers = injections_of(base.dealings.offers)
        expected = fidelity(base, [name for offer in offers for name in offer.names])
        missing = () if self.partial else expected.missing
        if missing and not expected.may_be_imaged:
            raise IncompleteRestoreError(hosted.name, base.number, missing)
        for offer in offers:
            hosted.declare(offer)
        return missing


def _begin(hosted: HostedRuntime) -> None:
    """Starts its jail, since only that shows whether it has all of its state."""
    try:
        hosted.start()
    except BaseException:
        hosted.refill.close()
        raise


NO_STORAGE: Final = RuntimeStorage()
