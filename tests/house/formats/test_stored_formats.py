"""Data that other versions of Cenote have stored is read with its meaning, or refused with a message.

Each archive was written by `tests.house.formats.written` on its day. Add one where a format changes; change none.
"""

from __future__ import annotations

import platform
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from tests.house.formats.written import ARCHIVES, CELLS, KEY, SANDBOX, given

from cenote.gateway.audit.reader import entries, verify
from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import Tokens
from cenote.harness import Patch
from cenote.harness.patching.errors import NoWayError
from cenote.runtime import IncompleteRestoreError, PythonRuntime, foretold
from cenote.runtime import verify as verify_checkpoint
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.history.event_log import open_log

WRITTEN_WITH = "3.11"
"""The Python of all archives: functions in a checkpoint are code of one version."""


@pytest.fixture(params=sorted(ARCHIVES.glob("*.tar.xz")), ids=lambda path: path.name[:10])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an archive's files."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_a_history_is_asked_and_gone_on_with(stored: Path) -> None:
    """Steps, their authors, their dependents, and a slice of it."""
    with PythonRuntime(sandbox=SANDBOX, name="r", history=stored / "history.sqlite") as runtime:
        state = runtime.state
        assert [*CELLS, "later = 1"] == [step.code for step in state.steps]
        assert ("model call 17", "failed") == (state.steps[0].cause, state.steps[3].status)
        writer = {name: state.blame(name).step.code for name in ("x", "alias", "total")}
        assert {"x": CELLS[0], "alias": CELLS[2], "total": CELLS[4]} == writer
        assert {state.steps[2].number, state.steps[4].number} <= set(state.dependents("x").steps)
        assert "rows.append(fetch(2))" in state.slice("total").source
        runtime.execute("y = 1")
    with PythonRuntime(sandbox=SANDBOX, name="r", history=stored / "history.sqlite") as runtime:
        assert "y = 1" in [step.code for step in runtime.state.steps]


def test_a_checkpoint_is_whole(stored: Path) -> None:
    """Every byte that it needs is stored, by number and by label."""
    store = CheckpointStore(stored / "store")
    assert ["r"] == store.names()
    assert ["", "kept"] == [info.label for info in store.checkpoints("r")]
    verify_checkpoint(store, "r")


def test_a_runtime_is_restored_and_patched(stored: Path) -> None:
    """With the record of its steps; otherwise the patch is refused. On another Python it is, with the reason."""
    history = stored / "history.sqlite"
    if not platform.python_version().startswith(f"{WRITTEN_WITH}."):
        with pytest.raises(IncompleteRestoreError, match=f"made with Python {WRITTEN_WITH}"):
            PythonRuntime.restore(stored / "store", "r", "kept", sandbox=SANDBOX, **given())
        return
    assert ("fetch",) == foretold(stored / "store", "r", "kept").unoffered
    with PythonRuntime.restore(stored / "store", "r", sandbox=SANDBOX, history=history, **given()) as runtime:
        result = runtime.execute("x, text, rows, alias is rows, open('f.txt').read(), total, later, base")
        assert "(20, 'hello', [20, 20], True, 'hello', 45, 1, 5)" == result.value
        plan = runtime.state.plan(Patch.replace_step(runtime.state.steps[4].number, "total = sum(rows)"))
        try:
            runtime.state.apply(plan)
        except NoWayError:  # the stand-in for a host function has other versions than before
            total = "45"
        else:
            total = "40"
        assert total == runtime.execute("total").value


def test_a_platforms_record_is_read(stored: Path) -> None:
    """As a successor of its host reads it."""
    with closing(open_log(stored / "record")) as history:
        assert [(1, "x = 1", "ok", "ann"), (2, "x / 0", "failed", "")] == [
            (step.number, step.code, step.status, step.author) for step in history.tree
        ]
        assert (1, ("raw",)) == (history.tree.head, history.begun)


def test_a_platforms_tenants_are_known(stored: Path) -> None:
    """With their tokens."""
    with Database(stored / "gateway.db") as database:
        assert "acme" == Tokens(database).authenticate((stored / "token").read_text()).tenant_name


def test_an_audit_log_holds(stored: Path) -> None:
    """Its chain, its head, and its records."""
    assert verify(stored / "audit", KEY).broken is None
    assert [{"number": 1}, {"text": "é"}] == [dict(each.event.facts) for each in entries(stored / "audit")][
        :2
    ]
