"""Removing checkpoints that nobody needs, beside readers and a writer."""

from __future__ import annotations

from cenote_worker.checkpoints.folder import Folder
from cenote_worker.checkpoints.manifest import MalformedManifest, Manifest, NewerManifest
from cenote_worker.checkpoints.store import read_manifest


def sweep(folder: Folder, keep: int) -> int:
    """Keeps the `keep` newest checkpoints, all that have a label, and every file whose chunks one of those needs.

    Returns how many files were deleted. Safe beside the writer: its next checkpoint builds on the newest one, which
    is always kept, and a file that came after the look is not touched. A damaged file is kept as well: what it held
    may be wanted from it by other means. With one of a later format nothing is deleted: only a newer version knows
    which files it needs. Raises OSError.
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
    """None for one that is damaged, or was deleted meanwhile. Raises NewerManifest."""
    try:
        return read_manifest(folder, number)
    except NewerManifest:
        raise
    except (MalformedManifest, FileNotFoundError):
        return None
