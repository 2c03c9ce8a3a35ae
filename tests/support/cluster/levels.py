"""Counts the resources of a platform that its users may leave, by owner, to compare with an earlier count."""

from __future__ import annotations

import fnmatch
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import everyone, title

from cenote.gateway.machines.cluster_nodes import HOSTS

SPARE = 8
"""Descriptors that a process may have more than at first: connections to others, which open and close."""

BOUNDED = {"runtime actor: processes": HOSTS}
"""What stays for reuse once it was needed."""

LINES = 6
"""Connections of each of those to the descriptor store, whichever of its clients has made a call."""

KEPT = ("runtime/", "spare/", "value/", "spilled/", "lease/")

TITLES = {
    "ray::RuntimeActor*": "runtime actor",
    "ray::NodeAgent*": "node agent",
    "ray::NurseryActor*": "nursery",
    "ray::OrchestratorActor*": "orchestrator",
    "ray::SpareActor*": "orchestrator",
    "*cenote.gateway.process.daemon *": "gateway",
    "*cenote.gateway.process.watcher *": "watcher",
    "*cenote_worker.descriptor_store.daemon *": "keeper",
    "*cenote_worker.zygote.main *": "zygote",
}
"""Ray's own processes are not counted: Ray starts and ends idle ones."""

GROUPS = re.compile(".*/cenote-client-[0-9a-f]+")
SHARED = re.compile(r" /dev/shm/([^/\n]+)(?: \(deleted\))?\n")
GROWING = ("audit/*", "*.log", "gateway.db-*")
"""Files that grow with the platform's history; and a database's own."""

Levels = Mapping[str, int]


class Accounts:
    """The counts of one platform. Control groups are found by their creators' locks, so call `look` now and then."""

    def __init__(self, platform: StandingPlatform) -> None:
        self._platform = platform
        self._groups: set[Path] = set()
        self._clusters: set[Path] = set()

    def look(self) -> None:
        """Records which control groups and which cluster folder exist now."""
        with suppress(OSError, ValueError):
            self._clusters.add(Path(str(self._platform.cluster["folder"])))
        for pid in self._platform.marked():
            if _kind(pid) == "nursery":
                self._groups.update(_groups_of(pid))

    def count(self) -> Levels:
        self.look()
        levels: Counter[str] = Counter()
        for kind in KEPT:
            levels[f"keeper: entries {kind}"] = len(self._platform.kept(kind))
        for pid in self._platform.marked():
            self._count_process(pid, levels)
        levels["keeper: descriptors, most"] -= LINES * levels["runtime actor: processes"]
        levels["nursery: control groups of jails"] = sum(map(len, map(_folders, self._groups)))
        marked = self._platform.marked()
        held = {folder for pid in marked for folder in _groups_of(pid)}
        levels["nobody: control groups"] = sum(group.exists() for group in self._groups - held)
        levels.update({f"state folder: {name}": 1 for name in self._files()})
        levels["nobody: clusters' folders"] = sum(folder.exists() for folder in self._clusters) - 1
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        levels["machine: mounts"] = sum("cenote" in mount and "/pytest-of-" not in mount for mount in mounts)
        levels["machine: names in /dev/shm"] = len(set(os.listdir("/dev/shm")) - _shared_by_others(marked))
        levels.update({f"database: rows of {table}": count for table, count in self._rows()})
        return levels

    def _count_process(self, pid: int, levels: Counter[str]) -> None:
        if (kind := _kind(pid)) is None:
            return
        levels[f"{kind}: processes"] += 1
        if kind == "jail":
            return
        files = _open_files(pid)
        counts = Counter(f"{name}, most" for name in files if name.startswith("/memfd:"))
        counts["descriptors, most"] = len(files)
        for what, count in counts.items():
            levels[f"{kind}: {what}"] = max(levels[f"{kind}: {what}"], count)

    def _files(self) -> Iterator[str]:
        state = self._platform.state
        for folder, inner, files in os.walk(state):  # skips files that are removed meanwhile
            for each in (*inner, *files):
                name = os.path.relpath(os.path.join(folder, each), state)
                if not any(fnmatch.fnmatch(name, growing) for growing in GROWING):
                    yield name

    def _rows(self) -> Iterator[tuple[str, int]]:
        with closing(sqlite3.connect(self._platform.state / "gateway.db")) as database:
            for (table,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                yield table, database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def risen(before: Levels, now: Levels) -> Levels:
    """The differences of the counts that exceed the earlier ones."""
    found = {}
    for what, count in now.items():
        spare = SPARE if what.endswith("descriptors, most") else 0
        if count > max(before.get(what, 0) + spare, BOUNDED.get(what, 0)):
            found[what] = count - before.get(what, 0)
    return found


def table(before: Levels, now: Levels) -> str:
    names = sorted({*before, *now})
    rows = [f"{'owner: what':50}{'before':>8}{'now':>8}"]
    return "\n".join(rows + [f"{name:50}{before.get(name, 0):8}{now.get(name, 0):8}" for name in names])


def _kind(pid: int) -> str | None:
    if in_jail(pid):
        return "jail"
    line = title(pid)
    return next((kind for pattern, kind in TITLES.items() if fnmatch.fnmatch(line, pattern)), None)


def in_jail(pid: int) -> int | None:
    """The process's pid in its jail; None for a process outside jails."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:") and len(numbers := line.split()[1:]) > 1:
                return int(numbers[-1])
    return None


def _shared_by_others(ours: Collection[int]) -> set[str]:
    """Names in /dev/shm that programs besides the platform have mapped."""
    found: set[str] = set()
    for pid in set(everyone()) - set(ours):
        with suppress(OSError):
            found.update(SHARED.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")))
    return found


def _open_files(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(os.readlink(link))
    return found


def _groups_of(pid: int) -> set[Path]:
    return {Path(match[0]) for name in _open_files(pid) if (match := GROUPS.match(name))}


def _folders(group: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in group.iterdir() if path.is_dir()]
    return []
