"""The tables of options in the documents match the definitions."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_tables_are_fresh() -> None:
    """A changed bound, default or help changes its table: `python scripts/option_tables.py` writes it."""
    script = runpy.run_path(str(ROOT / "scripts" / "option_tables.py"))
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert script["fresh"](page) == page
    assert {place[1] for place in script["PLACE"].findall(page)} == script["KINDS"].keys()


def test_a_table_has_every_option() -> None:
    """With its default, its bounds and its flag."""
    script = runpy.run_path(str(ROOT / "scripts" / "option_tables.py"))
    for kind in script["KINDS"].values():
        table = script["table"](kind)
        assert table.count("\n") == len(script["definitions"](kind)) + 2
    assert "`processes`<br>`--processes` | `128` | a whole number from 8 to 4194304 |" in script["table"](
        script["SandboxPolicy"]
    )
