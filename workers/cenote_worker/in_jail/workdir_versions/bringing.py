"""Which parts of a version can be made what they were there, without anything else noticing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.workdir_versions.entry import TOP, Entry, Signature, Tree, parent_of

__builtins__ = BUILTINS


class NotBrought(Exception):
    """Something stays as it is, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """Files that the process has open or mapped: whoever has one goes on with that very file, whatever takes its
    name. opened: devices and inodes. mapped: inodes, and paths, since systems differ in which they tell well."""

    opened: Collection[tuple[int, int]]
    mapped: Collection[int]
    paths: Collection[str]

    def has(self, path: str, signature: Signature) -> bool:
        """path: the whole one."""
        return path in self.paths or signature.file in self.opened or signature.inode in self.mapped


def wanted(version: Tree, paths: Iterable[str]) -> Tree:
    """What is to be there of these paths, in the order in which it is to be made. Raises NotBrought.

    Folders come first. Files come in the opposite order of the look: a file system in memory lists the newest first.
    """
    names = Counter(entry.signature.file for entry in version.values() if entry.kind == "file")
    asked = set(paths)
    for path in asked:
        entry = version.get(path)
        if entry is None:
            _check_absent(version, path)
        elif entry.kind == "other":
            raise NotBrought(entry.reason)
        elif entry.kind == "file" and names[entry.signature.file] > 1:
            raise NotBrought("it has several names")
    found = {path: entry for path, entry in version.items() if path in asked}
    folders = {path: entry for path, entry in found.items() if entry.kind == "folder"}
    return folders | {path: found[path] for path in reversed(found) if path not in folders}


def _check_absent(version: Tree, path: str) -> None:
    """That it is in no version may be for the folder that it is in, of which nothing is."""
    while path != TOP:
        path, _ = parent_of(path)
        if (entry := version.get(path)) is not None:
            if entry.kind == "other":
                raise NotBrought(f"of `{path}` no version has anything: {entry.reason}")
            return


def present(
    tree: Tree, target: Tree, paths: Iterable[str], links: Collection[str], top: str, used: InUse
) -> Tree:
    """What is there of these paths, as Restoring is to see it. Raises NotBrought.

    A file is written over in place, so that it keeps its place in its folder; but not one of those that have further
    names, `links`, which would become different, too.
    """
    asked = set(paths)
    for path in asked:
        entries = [entry for entry in (tree.get(path), target.get(path)) if entry is not None]
        if any(used.has(f"{top}/{path}", entry.signature) for entry in entries):
            raise NotBrought("somebody has it open")
    found = {path: entry for path, entry in tree.items() if path in asked}
    return {path: _as_seen(entry, target.get(path), path in links) for path, entry in found.items()}


def _as_seen(there: Entry, wanted: Entry | None, linked: bool) -> Entry:
    other = there.signature._replace(inode=0, ctime_ns=0)
    if wanted is not None and wanted.kind == there.kind == "file" and not linked:
        other = other._replace(device=wanted.signature.device, inode=wanted.signature.inode)
    return there._replace(signature=other)
