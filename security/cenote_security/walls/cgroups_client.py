"""The control groups of one client: a folder that its jails' groups are in, removed even if the client was killed."""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from cenote_security.walls.cgroups import Site, enable
from cenote_security.walls.cgroups_jail import JailGroup, Share

_PREFIX: Final = "cenote-client-"


class ClientGroups:
    """Makes groups for jails. The client holds a lock on its folders for as long as it lives.

    The kernel drops a lock with its last holder, however that ends, so a folder without one is a dead client's: no
    pid is compared, which would be wrong between containers that share a hierarchy.
    """

    def __init__(self, site: Site) -> None:
        """Raises OSError when the groups cannot be made after all."""
        self.site = site
        self._name = _PREFIX + secrets.token_hex(8)
        self._parents = sorted(set(site.folders.values()))
        self._numbers = itertools.count(1)
        self._awaited: set[str] = set()
        self._deserted: frozenset[Path] = frozenset()
        for parent in self._parents:
            sweep(parent)
        self._locks = [_make_locked(parent / self._name) for parent in self._parents]
        if site.version == "cgroup v2":
            for parent in self._parents:
                enable(parent / self._name, site.folders)

    def make(self, share: Share, arrival: ExitStack) -> JailGroup:
        """A group for one more jail, which no sweep takes before `arrival` is closed. Raises OSError."""
        name = str(next(self._numbers))
        self._awaited.add(name)
        arrival.callback(self._awaited.discard, name)
        folders = {controller: parent / self._name / name for controller, parent in self.site.folders.items()}
        return JailGroup(self.site.version, folders, share)

    def sweep(self) -> None:
        """From time to time: what dead clients have left, and groups of jails that have ended unsupervised.

        An own group without processes goes when it had none at the last sweep either, else the supervisor of its jail
        may be about to look how that has died; and never while a jail is on its way into it, which may take long.
        """
        for parent in self._parents:
            sweep(parent)
        awaited = self._awaited.copy()  # before anybody looks who is there
        own = (path for parent in self._parents for path in (parent / self._name).iterdir() if path.is_dir())
        left = (path for path in own if path.name not in awaited)
        deserted = frozenset(path for path in left if not (path / "cgroup.procs").read_bytes())
        for path in deserted & self._deserted:
            with suppress(OSError):
                path.rmdir()
        self._deserted = deserted

    def remove(self) -> None:
        """At the client's end. Groups with processes in them stay, for the next client to sweep."""
        for parent in self._parents:
            _remove(parent / self._name)
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()


def sweep(parent: Path) -> None:
    """Remove what clients that are dead have left below `parent`."""
    for folder in _folders_of_clients(parent):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _folders_of_clients(parent: Path) -> Iterator[Path]:
    return (path for path in parent.iterdir() if path.name.startswith(_PREFIX))


def _make_locked(folder: Path) -> int:
    """Between the two steps a sweep may take it for a dead client's: then it is made again."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return lock
        os.close(lock)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir():
                with suppress(OSError):
                    path.rmdir()
        folder.rmdir()
