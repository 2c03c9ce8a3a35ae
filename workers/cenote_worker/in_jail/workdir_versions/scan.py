"""A look at every path below a folder, by metadata alone.

What is looked at is hostile: links in loops, folders that become links meanwhile, names of any bytes, trees of any
depth. Each folder is opened relative to its parent and never through a link; what cannot be looked at is an entry
with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.workdir_versions.entry import TOP, Entry, Signature, Tree
from cenote_worker.in_jail.workdir_versions.folders import FOLDER

__builtins__ = BUILTINS

MAX_ENTRIES = 50_000
"""A look takes 4 µs per path, so this is 0.2 s."""

MAX_DEPTH = 64
"""Each level holds a descriptor."""

_open, _close, _scandir, _fstat, _readlink = os.open, os.close, os.scandir, os.fstat, os.readlink


class TooManyEntries(Exception):
    """More paths than a version can have."""


def scan(top: str) -> Tree:
    """All entries, without the contents of files. Raises TooManyEntries, and OSError if the top cannot be opened."""
    folder = _open(top, FOLDER)
    try:
        status = _fstat(folder)
        tree: Tree = {TOP: Entry(Signature.of(status))}
        for path, entry in _below(folder, "", status.st_dev, 1):
            tree[path] = entry
            if len(tree) > MAX_ENTRIES:
                raise TooManyEntries
        return tree
    finally:
        _close(folder)


def _below(folder: int, prefix: str, device: int, depth: int) -> Iterator[tuple[str, Entry]]:
    with _scandir(folder) as found:
        for item in found:
            try:
                signature = Signature.of(item.stat(follow_symlinks=False))
            except OSError:  # it is gone again
                continue
            path = prefix + item.name
            if signature.kind == "folder":
                yield from _inside(item.name, path, signature, folder, device, depth)
            else:
                yield path, _leaf(item.name, signature, folder)


def _leaf(name: str, signature: Signature, folder: int) -> Entry:
    if signature.kind == "file":
        return Entry(signature)
    if signature.kind == "other":
        return Entry(signature, reason="it is neither file, folder nor link")
    try:
        return Entry(signature, content=_readlink(name, dir_fd=folder))
    except OSError as error:
        return Entry(signature, reason=error.strerror or str(error))


def _inside(
    name: str, path: str, signature: Signature, parent: int, device: int, depth: int
) -> Iterator[tuple[str, Entry]]:
    if signature.device != device:
        yield path, Entry(signature, reason="it is a mount")
        return
    if depth == MAX_DEPTH:
        yield path, Entry(signature, reason=f"it is more than {MAX_DEPTH} folders deep")
        return
    try:
        folder = _open(name, FOLDER, dir_fd=parent)
    except OSError as error:
        yield path, Entry(signature, reason=error.strerror or str(error))
        return
    try:
        status = _fstat(folder)
        if status.st_dev == device:
            yield path, Entry(Signature.of(status))
            yield from _below(folder, path + "/", device, depth + 1)
    finally:
        _close(folder)
