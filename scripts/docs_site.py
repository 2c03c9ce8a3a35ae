"""Hooks of mkdocs for `make docs`: which files are pages of the site, and the pages of the API reference.

A page keeps its path in the repository, so that its relative links are right on the site, too. Linked files that are
not pages are copied; a link to a folder becomes one to its README.md, or plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ("*.md", "docs/**/*.md", "security/*.md", "benchmarks/*.md", "deploy/*.md", "examples/*.md")
MODULES: Final = (
    "cenote",
    "cenote.agent",
    "cenote.data",
    "cenote.errors",
    "cenote.harness",
    "cenote.jobs",
    "cenote.models",
    "cenote.plans",
    "cenote.platform_team",
    "cenote.rl",
    "cenote.runtime",
    "cenote.security",
    "cenote.skills",
    "cenote.team",
)
"""The public modules, each with a page of the reference."""
LINK: Final = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")

FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
INDENTED: Final = re.compile(r"^  (?=\S)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the pages of the reference and the decisions at their places in the navigation."""
    decisions = sorted(
        path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/decisions").glob("[0-9]*.md")
    )
    for entry in config.nav or ():
        if "API" in entry:
            entry["API"] = [{name: f"api/{name}.md"} for name in MODULES]
        if "Decisions" in entry:
            entry["Decisions"] += decisions
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages under their repository paths, the files they link to, and the reference."""
    documents = Path(config.docs_dir)
    found = {path.relative_to(ROOT).as_posix() for pattern in PAGES for path in ROOT.glob(pattern)}
    found |= {path.relative_to(ROOT).as_posix() for page in set(found) for path in _linked(ROOT / page)}
    site = Files([each for each in files if documents not in Path(each.abs_src_path or "/").parents])
    for path in sorted(found):
        site.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for name in MODULES:
        content = f"# `{name}`\n\n::: {name}\n    options: {{show_root_heading: false}}\n"
        site.append(File.generated(config, f"api/{name}.md", content=content))
    return site


def _linked(page: Path) -> list[Path]:
    """The files of the repository that a page links to."""
    targets = [
        (page.parent / path).resolve() for _, path, _ in LINK.findall(page.read_text(encoding="utf-8"))
    ]
    return [target for target in targets if target.is_file() and ROOT in target.parents]


def on_page_markdown(markdown: str, page: Page, **_rest: object) -> str:
    """Rewrites links to folders, which a site does not have, and nested lists, which Markdown indents by four."""
    folder = (ROOT / page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        text, path, _ = match.groups()
        if not (folder / path).is_dir():
            return match[0]
        index = f"{path.rstrip('/')}/README.md"
        return f"[{text}]({index})" if (folder / index).is_file() else text

    parts = FENCE.split(LINK.sub(link, markdown))  # every second part is a fence
    return "".join(part if number % 2 else INDENTED.sub("    ", part) for number, part in enumerate(parts))
