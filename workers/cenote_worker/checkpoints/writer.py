"""The one writer of a runtime's checkpoints, and the removal of those that are not needed, beside readers."""

from __future__ import annotations

import time
import zlib
from typing import Final

from cenote_worker.checkpoints.errors import StoreBusyError, StoreFailedError, StoreTakenError
from cenote_worker.checkpoints.folder import DraftFile, Folder, NumberTakenError
from cenote_worker.checkpoints.manifest import (
    NO_DEALINGS,
    RAW,
    ZLIB,
    ChunkLocation,
    Dealings,
    MalformedManifest,
    Manifest,
    NewerManifest,
    encode,
)
from cenote_worker.checkpoints.state import NOTHING_REBUILT, Rebuild, State, StoredPart
from cenote_worker.checkpoints.store import CheckpointInfo, CheckpointStore, describe, failures, read_manifest
from cenote_worker.transport.chunks import CHUNK, cut, digest


def sweep(folder: Folder, keep: int) -> int:
    """Keeps the `keep` newest checkpoints, all that have a label, and every file whose chunks one of those needs.

    Returns how many files were deleted. Safe beside the writer: its next checkpoint builds on the newest one, which
    is always kept, and a file that came after the listing is not touched. A damaged file is kept as well: its
    contents may be recovered by other means. If one has a later format, nothing is deleted: only a newer version
    knows which files it needs. Raises OSError.
    """
    numbers = folder.numbers()
    try:
        found = {number: _manifest(folder, number) for number in numbers}
    except NewerManifest:
        return 0
    manifests = {number: manifest for number, manifest in found.items() if manifest is not None}
    newest = set(numbers[-max(keep, 1) :])
    kept = [m for number, m in manifests.items() if number in newest or m.label]
    needed = set(numbers[-1:]).union(*(manifest.files for manifest in kept))
    useless = [number for number in manifests if number not in needed]
    for number in useless:
        folder.delete(number)
    return len(useless)


def _manifest(folder: Folder, number: int) -> Manifest | None:
    """The manifest; None for one that is damaged, or was deleted meanwhile. Raises NewerManifest."""
    try:
        return read_manifest(folder, number)
    except NewerManifest:
        raise
    except (MalformedManifest, FileNotFoundError):
        return None


WORTH: Final = 0.8
"""A chunk is stored compressed if that takes less than this share of it. The memory of arrays is never tried: zlib
writes 20-170 MB/s and reads 300 back, a hundred times slower than the bytes are digested and mapped."""

PAGE: Final = 4096
"""Bytes of a page of most machines. Where it is larger, arrays are copied as they are restored."""

_SAMPLE: Final = 4 * 1024


class CheckpointWriter:
    """Makes the checkpoints of one runtime, one at a time. Close it, or the name stays taken for other writers.

    A checkpoint builds on the one before: chunks that it has are not written again.
    """

    def __init__(self, store: CheckpointStore, name: str, base: Manifest | None) -> None:
        """base: the checkpoint that the runtime was restored from; the chunks of the newest one are known too.

        Raises StoreBusyError, StoreFailedError.
        """
        self._store = store
        self._name = name
        self._folder = store.folder(name)
        with failures(self._folder.place):
            fence = self._folder.claim()
            if fence is None:
                raise StoreBusyError(name)
            self._last = max(self._folder.numbers(), default=0)
        self._fence = fence
        self._parent = base.number if base is not None else 0
        self.known: dict[bytes, ChunkLocation] = dict(base.chunks) if base is not None else {}
        """Where the chunks of the newest checkpoint of this runtime lie."""

    def begin(self) -> CheckpointDraft:
        """Begins the next checkpoint; in full, if the folder was removed meanwhile.

        Raises StoreFailedError, StoreBusyError where another writer has begun that folder anew.
        """
        with failures(self._folder.place):
            # Another process may have swept the chunks of a restored state, or removed everything.
            there = frozenset(self._folder.numbers())
            if not there and not self._folder.was_claimed():
                self._claim_anew()
            known = {key: place for key, place in self.known.items() if place.file in there}
            return CheckpointDraft(self._folder.draft(self._last + 1), self._last + 1, known)

    def _claim_anew(self) -> None:
        if (fence := self._folder.claim()) is None:
            raise StoreBusyError(self._name)
        self._fence = fence

    def publish(
        self,
        draft: CheckpointDraft,
        state: State,
        label: str,
        dealings: Dealings = NO_DEALINGS,
        rebuild: Rebuild = NOTHING_REBUILT,
        record: StoredPart | None = None,
        *,
        whole: bool = False,
        environment: str = "",
    ) -> Manifest:
        """Publishes the draft: the checkpoint is on disk once this returns. From `dealings` on: see Manifest.

        Raises StoreTakenError when there was another writer meanwhile, StoreFailedError.
        """
        manifest = Manifest(
            number=draft.number,
            parent=self._parent,
            fence=self._fence,
            label=label,
            made=time.time(),
            state=state,
            chunks={key: draft.places[key] for key in (*state.lengths, *_digests(record))},
            dealings=dealings,
            rebuild=rebuild,
            record=record,
            whole=whole,
            environment=environment,
        )
        with failures(self._folder.place):
            draft.file.write(encode(manifest))
            if not self._folder.is_claimed(self._fence):
                raise StoreTakenError(self._name)
            if not manifest.files <= {draft.number, *self._folder.numbers()}:
                raise StoreFailedError(
                    self._folder.place, "it was swept while a checkpoint was made; try again"
                )
            try:
                draft.file.publish()
            except NumberTakenError:
                raise StoreTakenError(self._name) from None
            self._last = self._parent = draft.number
            self.known = dict(manifest.chunks)
            return manifest

    def describe(self, manifest: Manifest) -> CheckpointInfo:
        """The listed facts of a checkpoint. Raises StoreFailedError."""
        with failures(self._folder.place):
            return describe(manifest, self._folder)

    def sweep(self, keep: int) -> int:
        """Keeps the newest checkpoints and all with a label; see `sweep`. Raises StoreFailedError."""
        with failures(self._folder.place):
            return sweep(self._folder, keep)

    def close(self) -> None:
        """Lets another writer take over. Closing twice is fine."""
        self._folder.release()


class CheckpointDraft:
    """A checkpoint that is being made: chunks are put into it, then it is published or discarded."""

    def __init__(self, file: DraftFile, number: int, known: dict[bytes, ChunkLocation]) -> None:
        self.file = file
        self.number = number
        self.places = dict(known)
        """Where each chunk lies that the state may use."""
        self._end = 0

    def add(self, chunk: memoryview, *, dense: bool) -> bytes:
        """Writes a chunk; returns its digest. dense: it may be worth compressing. Raises OSError."""
        key = digest(chunk)
        if key not in self.places:
            coding, stored = _coded(chunk) if dense else (RAW, chunk)
            if not dense and chunk.nbytes == CHUNK:
                self._turn_page()
            self.file.write(stored)
            self.places[key] = ChunkLocation(self.number, self._end, len(stored), coding)
            self._end += len(stored)
        return key

    def add_part(self, data: bytes) -> StoredPart:
        """Writes its new chunks. Raises OSError."""
        view = memoryview(data)
        return StoredPart(view.nbytes, b"".join([self.add(chunk, dense=True) for chunk in cut(view)]))

    def _turn_page(self) -> None:
        """Pads to a page: whole chunks of arrays begin on pages, so that a large array can be mapped in the store."""
        missing = -self._end % PAGE
        self.file.write(bytes(missing))
        self._end += missing

    @property
    def fresh(self) -> int:
        """Bytes of the chunks written so far."""
        return self._end

    def discard(self) -> None:
        self.file.discard()


def _digests(part: StoredPart | None) -> list[bytes]:
    return [digest for digest, _ in part.chunks()] if part is not None else []


def _coded(chunk: memoryview) -> tuple[int, memoryview]:
    """Compresses a chunk if a sample shows that it pays: compressed data, such as images, costs little then."""
    sample = chunk[:_SAMPLE]
    if len(zlib.compress(sample, 1)) >= WORTH * len(sample):
        return RAW, chunk
    packed = zlib.compress(chunk, 1)
    return (ZLIB, memoryview(packed)) if len(packed) < WORTH * len(chunk) else (RAW, chunk)
