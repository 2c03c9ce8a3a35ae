"""Runs traps of the corpus and their patched forms, and reports where equal reads did not give equal writes.

A separate program: each run is a fork of one process, so that both begin with the same random state. Its argument N
selects one in N traps.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.soundness.trap import TRAPS, Trap
from tests.support.tracking.steps import Steps

from cenote_worker.execution.trace import ANYTHING, TREE, Location, Version, form_of, kind_of

Run = list[dict[str, Any]]
Companies = dict[Location, list[Location]]
"""By location, the locations that share objects with it, itself included."""

LIBRARIES = (
    (),
    ("numpy", "pandas"),
    ("duckdb", "pyarrow"),
    ("matplotlib.pyplot", "scipy.stats", "sklearn.linear_model", "sklearn.neighbors", "sklearn.tree"),
)
"""Imported once, before the forks for traps that name them, and after those for all other traps: the more a process
has imported, the more there is to copy. DuckDB comes after pandas, which it imports itself once it is asked for a
frame: a fork that has to import all of them takes several times as long as one that finds them. Polars is not among
them, since it starts a thread, which no fork would have.
"""


def run(cells: tuple[str, ...], workdir: Path, asked: list[list[Location]]) -> Run:
    """The traces of cells in a fork. asked: by cell, the locations whose versions are read before it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:  # whatever a trap does, no fork continues with its parent's code
            os.write(writing, json.dumps(_in_fork(cells, workdir, asked)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        found: Run = json.loads(pipe.read() or b"[]")
    os.waitpid(child, 0)
    return found


def _in_fork(cells: tuple[str, ...], workdir: Path, asked: list[list[Location]]) -> Run:
    tempfile.tempdir = str(workdir.parent / "temporary")
    for folder in (workdir, Path(tempfile.tempdir)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    os.chdir(workdir)
    sys.path.insert(0, str(workdir))
    sys.dont_write_bytecode = True
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    steps = Steps(workdir)
    sys.modules["__main__"] = steps.module
    traces = Run()
    for number, cell in enumerate(cells):
        before = dict(steps.tracker.versions(asked[number])) if asked else {}
        trace = steps.run(cell)
        # Each process has its own addresses and file numbers.
        addresses = not {"its address may be known", "it has several names"}.isdisjoint(
            trace.unportable.values()
        )
        unclear = bool(trace.opaque or trace.unrepeatable or addresses)
        groups = [sorted(group) for group in trace.groups]
        traces.append(
            {"reads": dict(trace.reads), "writes": dict(trace.writes), "before": before, "unclear": unclear,
             "mutated": sorted(trace.mutated), "groups": groups}
        )  # fmt: skip
    return traces


def check(trap: Trap, workdir: Path) -> tuple[int, list[str]]:
    """The number of steps with equal reads, and those of them with other results."""
    first = run(trap.cells, workdir, [])
    if all(step["unclear"] for step in first[trap.step :]):
        return 0, []
    files = [
        [each for each in trace["writes"].keys() - trace["reads"].keys() if kind_of(each) == "file"]
        for trace in first
    ]
    asked = [[*trace["reads"], *files[at], *trace["mutated"]] for at, trace in enumerate(first)]
    second = run(trap.patched, workdir, asked)
    matched, wrong, anything = 0, [], False
    known: dict[Location, Version] = {}
    companies: tuple[Companies, Companies] = ({}, {})
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        if number >= trap.step:
            anything = anything or ANYTHING in one["writes"] or ANYTHING in other["writes"]
        same = all(other["before"][location] == version for location, version in one["reads"].items())
        # What it changes in place must be unchanged before, and so must be the sharing of objects.
        same = same and all(other["before"][each] == known.get(each, "") for each in one["mutated"])
        was, now = companies
        same = same and all(was.get(each, [each]) == now.get(each, [each]) for each in one["reads"])
        # A file that is rewritten must not be a link by now, for example: see `form_of`.
        same = same and not any(form_of(other["before"][each]) for each in files[number - 1] if each != TREE)
        if number > trap.step and same and not anything and not one["unclear"]:
            matched += 1
            told = {location: version for location, version in one["writes"].items() if version[:1] != "?"}
            if any(kind_of(each) == "file" for each in told.keys() - {TREE}):
                told.pop(TREE, None)  # it depends on all files, which the step has not read
            if any(other["writes"].get(location) != version for location, version in told.items()):
                wrong.append(f"{trap.name}, step {number}")
        known.update(one["writes"])
        for company, trace in zip(companies, (one, other), strict=True):
            company.update({each: group for group in trace["groups"] for each in group})
    return matched, wrong


def needs(trap: Trap) -> int:
    """The last of LIBRARIES that it names."""
    program = "\n".join((*trap.cells, trap.code))
    named = [any(name.partition(".")[0] in program for name in names) for names in LIBRARIES]
    return max((number for number, names in enumerate(named) if names), default=0)


def checked(workdir: Path, every: int) -> Iterator[tuple[int, list[str]]]:
    """Each trap, or one in `every`, without those that await, for which there is no loop here."""
    for number, names in enumerate(LIBRARIES):
        for name in names:
            importlib.import_module(name)
        for trap in TRAPS[::every]:
            if number == needs(trap) and "await" not in "".join(trap.cells):
                yield check(trap, workdir)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = list(checked(Path(folder, "work"), int(sys.argv[1])))
    wrong = [name for _, names in found for name in names]
    print(json.dumps({"matched": sum(count for count, _ in found), "wrong": wrong}))
