"""Targets of links in documents exist; their Python code parses and imports the Cenote names it uses."""

import ast
import importlib
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    path
    for folder in (".", "docs", "examples", "benchmarks", "deploy", "security")
    for path in (ROOT / folder).glob("*.md" if folder != "docs" else "**/*.md")
)
GUIDE = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC = {
    name
    for module in (
        "cenote",
        "cenote.environments",
        "cenote.harness",
        "cenote.models",
        "cenote.runtime",
        "cenote.team",
    )
    for name in importlib.import_module(module).__all__
}
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^```py(?:thon)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    for path, anchor in LINK.findall(document.read_text()):
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{path} is not there"
        assert not anchor or anchor in anchors(target), f"{path} has no heading #{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_of_a_document_parses(document: Path) -> None:
    for code in FENCE.findall(document.read_text()):
        compile(textwrap.dedent(code), str(document), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def names_of(module: str) -> set[str]:
    """Its importable names. An adapter is parsed, since its framework may not be installed here."""
    if not module.startswith("cenote.adapters."):
        return set(dir(importlib.import_module(module)))
    source = ROOT / "platform" / f"{module.replace('.', '/')}.py"
    body = ast.parse(source.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.name)
def test_code_runs_as_far_as_names_go(page: Path) -> None:
    """A reader who copies a page from its top has each Cenote name defined before its use."""
    imported: set[str] = set()
    for block in FENCE.findall(page.read_text()):
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module is not None
                if node.module.startswith("cenote"):
                    there = names_of(node.module)
                    assert [] == [alias.name for alias in node.names if alias.name not in there]
                imported |= {alias.asname or alias.name for alias in node.names}
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert set() == (used & PUBLIC) - imported, (
            f"used in this block and not imported on the page:\n{block}"
        )
