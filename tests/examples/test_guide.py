"""The code in the guide: it is Python, and what it takes from Cenote is there and is imported on the same page."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PUBLIC = {
    name
    for module in ("cenote", "cenote.harness", "cenote.models", "cenote.runtime", "cenote.team")
    for name in importlib.import_module(module).__all__
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_runs_as_far_as_names_go(page: Path) -> None:
    """Who copies a page from its top finds each name of Cenote's defined before it is used."""
    imported: set[str] = set()
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        compile(block, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module is not None
                if node.module.startswith("cenote"):
                    module = importlib.import_module(node.module)
                    assert [] == [alias.name for alias in node.names if not hasattr(module, alias.name)]
                imported |= {alias.asname or alias.name for alias in node.names}
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert set() == (used & PUBLIC) - imported, (
            f"used in this block and not imported on the page:\n{block}"
        )
