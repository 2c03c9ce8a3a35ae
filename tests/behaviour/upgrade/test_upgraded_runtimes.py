"""What embedded runtimes of 0.1.0 have stored is theirs in this version: values, files, steps, patches."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.support.upgrade.written_by_0_1_0 import fetch

from cenote.doors.console.recorded import Records
from cenote.harness import Patch
from cenote.runtime import Function, PythonRuntime, Variable, foretold, verify
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.manifest import FOOTER
from cenote_worker.checkpoints.store import CheckpointStore

SANDBOX = SandboxPolicy(preload=("numpy", "pandas"))

HISTORY_OF_0_1_0 = 3
"""The latest schema of a history that 0.1.0 opens."""

CHECKPOINT_OF_0_1_0 = 1
"""The only format of a checkpoint that 0.1.0 reads."""

VALUES = """
(plain, alias is plain["b"], point.norm(), row, colour is Colour.RED, triple(4), array.sum(), totals.to_dict(),
 frame["v"].tolist(), open("data/link").read(), opened.read(), next(counting), random.random(), asked, total)
"""


@pytest.fixture
def stored(release: Path, tmp_path: Path) -> Path:
    """A copy for one test."""
    return shutil.copytree(release / "embedded", tmp_path / "embedded")


def given() -> dict[str, Any]:
    return {"variables": [Variable("base", 5)], "functions": [Function(fetch, host=True, effect="pure")]}


def history_version(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute("SELECT version FROM history_schema").fetchone()[0])


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", ".writer", "writer"))
    }


@pytest.mark.parametrize(
    ("label", "asked", "total", "later"), [("loaded", 50, 67.0, None), ("", 60, 77.0, [1, 2])]
)
def test_a_checkpoint_is_restored(
    stored: Path, label: str, asked: int, total: float, later: list[int] | None
) -> None:
    """Plain values and aliases, classes of the session, numpy, pandas, files, an open file, a generator, the state of
    `random`, and a host function; before and behind a patch. The store stays as it was."""
    store, before = stored / "store", contents(stored)
    verify(CheckpointStore(store), "analysis")
    told = foretold(store, "analysis", label or None)
    assert (("fetch",), True) == (told.unoffered, all(each.startswith("fetch: ") for each in told.missing))
    with PythonRuntime.restore(store, "analysis", label or None, sandbox=SANDBOX, **given()) as runtime:
        expected = (
            "({'a': 1, 'b': [1.5, None, 'é'], 'c': (1, {2, 3})}, True, 5.0, Row(name='a', tags=[1]), True, 12, "
            "np.float64(15.0), {'x': 4, 'y': 2}, [1, 2, 3], 'hello', 'llo', 3, 0.7417869892607294, "
            f"{asked}, {total})"
        )
        assert expected == runtime.execute(VALUES).value
        assert str(later) == str(runtime.execute("globals().get('later')").value)
    assert before == contents(stored)


def test_a_runtime_that_sleeps_goes_on(stored: Path) -> None:
    """A durable one that had hibernated; what it stores from here on is refused by 0.1.0."""
    with PythonRuntime.open(stored / "store", "asleep", sandbox=SANDBOX) as runtime:
        assert "(20, [20, 20, 20], 4)" == runtime.execute("x, y.tolist(), next(g)").value
    newest = max((stored / "store" / "asleep").glob("*.checkpoint"))
    version = int.from_bytes(newest.read_bytes()[-FOOTER:][-12:-8], "little")
    assert version > CHECKPOINT_OF_0_1_0


def test_a_runtime_that_was_killed_goes_on(stored: Path) -> None:
    """With what it had answered, and its steps, from a database that was not closed."""
    with PythonRuntime.open(
        stored / "store", "killed", sandbox=SANDBOX, history=str(stored / "killed.sqlite")
    ) as runtime:
        assert "(2, 'kept')" == runtime.execute("x, open('f').read()").value
        assert ["x = 1", "x += 1"] == [step.code.splitlines()[0] for step in runtime.state.steps][:2]


def test_a_history_is_read_and_written(stored: Path) -> None:
    """With the line that a rollback left, the patch on the other one, and what is asked of both. From the first
    writer on, 0.1.0 refuses it."""
    history = stored / "history.sqlite"
    assert HISTORY_OF_0_1_0 == history_version(history)
    with PythonRuntime(sandbox=SANDBOX, history=str(history), name="analysis") as runtime:
        state = runtime.state
        assert "after = 'the rollback'" == state.steps[-1].code
        assert {"failed": 1, "ok": 9} == {
            status: sum(step.status == status for step in state.steps) for status in ("failed", "ok")
        }
        asked = state.blame("asked")
        assert asked.step is not None
        assert ("model call 17", "asked = fetch(base)") == (asked.step.cause, asked.statement)
        assert "asked = fetch(base)" in state.slice("total").source
    assert history_version(history) > HISTORY_OF_0_1_0


async def test_a_history_is_viewed(stored: Path) -> None:
    """As `cenote view` reads it: nothing is changed, the version neither."""
    before = contents(stored)
    records = Records([str(stored / "history.sqlite"), str(stored / "store")])
    assert {"analysis"} <= {listed.name for listed in await records.listed()}
    state = await (await records.get("analysis")).state()
    assert "after = 'the rollback'" == state.steps[-1].code
    assert before == contents(stored)


def test_a_patch_of_a_restored_runtime_is_applied(stored: Path) -> None:
    """Behind the upgrade, of a step before it: as 0.1.0 did."""
    with PythonRuntime.restore(
        stored / "store",
        "analysis",
        "loaded",
        sandbox=SANDBOX,
        history=str(stored / "history.sqlite"),
        **given(),
    ) as runtime:
        asked = next(step.number for step in runtime.state.steps if "fetch" in step.code)
        runtime.state.apply(runtime.state.plan(Patch.replace_step(asked, "asked = fetch(base + 2)")))
        assert "(70, 87.0)" == runtime.execute("asked, total").value
