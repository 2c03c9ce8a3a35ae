"""Documents are short and correct: sizes, paths and words of all documents except the changelog."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

import cenote

ROOT: Final = Path(__file__).resolve().parents[3]
ARCHITECTURE: Final = ROOT / "ARCHITECTURE.md"
DECISIONS: Final = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
PAPERS: Final = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / folder / "README.md" for folder in ("benchmarks", "deploy", "examples")),
    ROOT / "security" / "THREATS.md",
]
PACKAGES: Final = ("platform/cenote", "workers/cenote_worker", "security/cenote_security")
QUOTED: Final = re.compile(r"`([^`\n]+)`")
PATH: Final = re.compile(r"[\w.-]+(/[\w.*-]+)*/?")
SUFFIX: Final = re.compile(r"\.(py|md|proto|toml|yaml)$")


AVOIDED: Final = {
    "whoever": "the role: the caller, the owner, a client",
    "nobody": "no client, no process; or the passive",
    "somebody": "the role",
    "anybody": "the role",
    "everybody": "all clients, all processes",
    "behind": "after",
    "told": "is shown, gets a notice, an error says",
    "of today": "current",
    "goes? on": "continues",
    "going on": "continues",
    "gone on": "continued",
    "in place of": "instead of",
    "one's own": "your own",
    "as ever": "as before",
    "anew": "again",
    "to be had": "available",
    "under way with": "working on",
    "comes? to nobody": "is unknown",
    "that there (?:is|are)\\b(?=[.,;:])": "the existing ones",
    "has not to be": "need not be",
}
"""Words to avoid, and their replacements."""
CODE: Final = re.compile(r"```(?:text|console)?\n.*?```|`[^`\n]+`", re.DOTALL)


def is_path(text: str) -> bool:
    return PATH.fullmatch(text) is not None and ("/" in text or SUFFIX.search(text) is not None)


def paths(paper: Path) -> set[str]:
    return {text for text in QUOTED.findall(paper.read_text(encoding="utf-8")) if is_path(text)}


def exists(path: str) -> bool:
    """At the root or in one of the packages; a pattern names at least one file."""
    folders = (ROOT, *(ROOT / package for package in PACKAGES))
    return any(
        any(folder.glob(path.rstrip("/") if "/" in path or "*" not in path else f"**/{path}"))
        for folder in folders
    )


def test_the_architecture_is_read_in_ten_minutes() -> None:
    """At most 12 KiB."""
    assert len(ARCHITECTURE.read_bytes()) <= 12 * 1024


def test_the_architecture_names_paths_that_exist() -> None:
    """Each path, of a file or of a folder; and there are many of them."""
    named = paths(ARCHITECTURE)
    assert [] == sorted(path for path in named if not exists(path))
    assert len(named) > 80


def test_decisions_name_files_that_exist() -> None:
    """A path of a decision is the end of a tracked file's path, or a folder of one."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = [f"/{line}" for line in listed.splitlines()]

    def is_there(path: str) -> bool:
        wanted = f"/{path}"
        return any(line.endswith(wanted) or f"{wanted.rstrip('/')}/" in line for line in tracked)

    missing = {page.name: sorted(each for each in paths(page) if not is_there(each)) for page in DECISIONS}
    assert {} == {page: found for page, found in missing.items() if found}


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_short_and_in_order(page: Path) -> None:
    """At most 3 KiB: context, decision, consequences; its number is in its heading, and it is in the list."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert ["Context", "Decision", "Consequences"] == headings[:3]
    assert len(text.encode()) <= 3 * 1024
    assert text.startswith(f"# {page.name[:3]}: ")
    assert f"]({page.name})" in (page.parent / "README.md").read_text(encoding="utf-8")


def test_the_glossary_has_at_most_forty_words() -> None:
    """A new word replaces another; each has a meaning of one or two sentences, and occurs once."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE)[1:]
    words = [word for word, _ in rows]
    assert 20 < len(words) <= 40
    assert sorted(set(words)) == sorted(words)
    assert [] == [word for word, meaning in rows if not 1 <= len(re.findall(r"[.](?= |$)", meaning)) <= 3]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: str(paper.relative_to(ROOT)))
def test_papers_use_the_usual_words(paper: Path) -> None:
    """Text, tables and comments of examples; not output of commands, nor names in code."""
    text = CODE.sub(lambda code: "\n" * code[0].count("\n"), paper.read_text(encoding="utf-8"))
    found = [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}; write: {instead}"
        for word, instead in AVOIDED.items()
        for match in re.finditer(rf"(?<![\w-]){word}(?![\w-])", text, re.IGNORECASE)
    ]
    assert [] == found


def test_avoided_words_are_found() -> None:
    """The list finds its words, and ignores other words with the same letters."""
    found = {
        word
        for word in AVOIDED
        if re.search(rf"(?<![\w-]){word}(?![\w-])", "nobody goes on behind it, as ever")
    }
    assert {"nobody", "goes? on", "behind", "as ever"} == found
    assert not any(re.search(rf"(?<![\w-]){word}(?![\w-])", "untold renewal, ongoing") for word in AVOIDED)


def test_the_site_has_every_page_and_every_public_module() -> None:
    """`make docs` needs a separate environment; this finds missing pages, too."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md"))
    assert [] == [page for page in pages if f"- {page}\n" not in navigation]
    hooks = ast.parse((ROOT / "scripts" / "docs_site.py").read_text(encoding="utf-8"))
    named = next(
        ast.literal_eval(node.value)
        for node in hooks.body
        if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.target) == "MODULES"
    )
    package = ROOT / "platform" / "cenote"
    public = {f"cenote.{path.parent.name}" for path in package.glob("*/__init__.py") if _exports(path)}
    internal = {"cenote.cave_agent"}  # has its own page: docs/cave-agent.md
    assert set() == public - set(named) - internal


def _exports(path: Path) -> bool:
    """Whether a module lists its exports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in tree.body
    )


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    """Unreleased first, then versions with dates; each section has a name of that form and no other."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    assert versions[1].startswith(f"{cenote.__version__} - ")
    sections = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert len(text.splitlines()) < 400
