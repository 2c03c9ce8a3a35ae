"""Notebooks as histories: cells become steps, which questions and patches work on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cenote.cli.main import main
from cenote.harness import Patch, import_notebook
from cenote.harness.notebook_import import read_notebook
from cenote.runtime import PythonRuntime
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy


def cell(
    source: str | list[str], *outputs: dict[str, Any], count: int | None = 1, **more: Any
) -> dict[str, Any]:
    recorded = {"outputs": list(outputs), "execution_count": count}
    return {"cell_type": "code", "metadata": {}, "source": source, **recorded, **more}


def printed(text: str | list[str], name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def value(text: str) -> dict[str, Any]:
    return {
        "output_type": "execute_result",
        "data": {"text/plain": [text]},
        "metadata": {},
        "execution_count": 1,
    }


def failed(kind: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": kind, "evalue": "", "traceback": []}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(*cells: dict[str, Any], **more: Any) -> Path:
        path = tmp_path / "analysis.ipynb"
        path.write_text(
            json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells, **more})
        )
        return path

    return write


@pytest.fixture(scope="module")
def small() -> SandboxPolicy:
    return SandboxPolicy(preload=())


PROSE = {"cell_type": "markdown", "metadata": {}, "source": "# Title"}


def test_cells_become_steps_of_a_graph_that_patches_work_on(
    written: Callable[..., Path], small: SandboxPolicy
) -> None:
    path = written(
        PROSE,
        cell(["a = 2\n", "b = 3"]),
        cell(""),
        cell("total = a * 10", count=None),
        cell("other = b * 10"),
        cell("print(total)\ntotal + 1", printed(["20\n"]), value("21")),
    )
    with PythonRuntime(sandbox=small) as runtime:
        done = import_notebook(runtime, path)
        assert [(2, 1), (4, 2), (5, 3), (6, 4)] == [(each.number, each.step) for each in done.cells]
        assert ((), ()) == (done.different, done.left)
        edges = {
            (edge["source"], edge["target"]) for edge in runtime.state.graph()["edges"] if edge["symbols"]
        }
        assert {(1, 2), (1, 3), (2, 4)} <= edges
        assert [1, 2] == [statement.step for statement in runtime.state.slice("total").statements]
        result = runtime.state.apply(runtime.state.plan(Patch.replace_step(2, "total = a * 100")))
        assert ("applied", "200") == (result.status, runtime.execute("total").value)
        assert 3 not in result.steps_rerun


def test_what_differs_from_the_notebook_is_named(written: Callable[..., Path], small: SandboxPolicy) -> None:
    """An address or what goes to stderr is no difference, and a cell that was never run has nothing to compare."""
    path = written(
        cell("print(1)", printed("1\n")),
        cell("print(2)", printed("3\n")),
        cell(
            "print(object)\nobject()",
            printed("<class 'object'>\n"),
            value("<object object at 0x7f0000000000>"),
        ),
        cell("5", value("6")),
        cell("print(7)", count=None),
        cell("print(8)"),
        cell("import sys\nprint(9, file=sys.stderr)", printed("10\n", "stderr")),
    )
    with PythonRuntime(sandbox=small) as runtime:
        assert (2, 4, 6) == import_notebook(runtime, path).different


def test_a_cell_that_fails_ends_it_unless_it_was_meant_to(
    written: Callable[..., Path], small: SandboxPolicy
) -> None:
    path = written(
        cell("1 / 0", failed("ZeroDivisionError")),
        cell("undefined", metadata={"tags": ["raises-exception"]}, count=None),
        cell("x = 1\nraise ValueError(x)", count=None),
        cell("x + 1"),
    )
    with PythonRuntime(sandbox=small) as runtime:
        done = import_notebook(runtime, path)
        kinds = [each.error and each.error.type for each in done.cells]
        assert (["ZeroDivisionError", "NameError", "ValueError"], (4,)) == (kinds, done.left)
        assert () == done.different
        assert () == import_notebook(runtime, path, keep_going=True).left


def test_an_export_comes_back(tmp_path: Path, small: SandboxPolicy) -> None:
    with PythonRuntime(sandbox=small) as runtime:
        for code in ("x = [1, 2]", "print(x)\nsum(x)", "1 / 0"):
            runtime.execute(code)
        path = runtime.state.export(tmp_path / "run.ipynb")
    with PythonRuntime(sandbox=small) as again:
        done = import_notebook(again, path)
        assert ((), ()) == (done.different, done.left)
        assert ["x = [1, 2]", "print(x)\nsum(x)", "1 / 0"] == [step.code for step in again.state.steps]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no notebook"),
        ("[]", "is no notebook"),
        ('{"nbformat": 4}', "is no notebook"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code", "source": 5}]}', "is no notebook"),
        ('{"nbformat": 4, "cells": [5]}', "is no notebook"),
        ('{"nbformat": 3, "worksheets": []}', "format 3, not 4: save it again"),
        ('{"nbformat": 4, "cells": [], "metadata": {"language_info": {"name": "R"}}}', "language 'R'"),
        (
            '{"nbformat": 4, "cells": [], "metadata": {"kernelspec": {"language": "julia"}}}',
            "language 'julia'",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "other.ipynb"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_notebook(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_notebook(tmp_path / "none.ipynb")


def test_the_command_puts_steps_into_a_history_and_the_state_into_a_store(
    written: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], small: SandboxPolicy
) -> None:
    path = written(cell("x = 1"), cell("print(x)", printed("2\n")), cell("1 / 0"), cell("x"))
    store, history = str(tmp_path / "store"), str(tmp_path / "steps.sqlite")
    assert 1 == main(("jupyter", "import", str(path), "--store", store, "--history", history))
    assert capsys.readouterr().out.splitlines() == [
        "3 cells ran as steps 1 to 3 of analysis",
        "cell 3 failed: ZeroDivisionError: division by zero",
        "other than the notebook has recorded: cells 2, 3",
        "1 cell did not run; --keep-going does not stop",
    ]
    with PythonRuntime.open(store, "analysis", sandbox=small, history=history) as runtime:
        assert "1" == runtime.execute("x").value
        assert ["x = 1", "print(x)", "1 / 0", "x"] == [step.code for step in runtime.state.steps]
        runtime.state.apply(runtime.state.plan(Patch.replace_step(1, "x = 5")))
        assert "5" == runtime.execute("x").value


def test_the_command_wants_a_place_for_the_history(
    written: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CENOTE_ADDRESS", raising=False)
    assert 2 == main(("jupyter", "import", str(written(cell("x = 1")))))
    assert "--history FILE, or a platform with --address HOST:PORT" in capsys.readouterr().err
