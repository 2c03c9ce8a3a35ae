"""Shared by the tests of the rules: the two sets of snippets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cenote_worker.jail.cells.ipython_syntax import to_python

Corpus = dict[str, str]


def load_corpus(kind: str) -> Corpus:
    """Snippets by name, as rules get them: with magics as calls. A line `#: name` begins one."""
    snippets: Corpus = {}
    name = ""
    for line in (
        (Path(__file__).parent / "corpus" / f"{kind}.txt").read_text("utf-8").splitlines(keepends=True)
    ):
        if line.startswith("#: "):
            name = line[3:].strip()
            assert name not in snippets, f"two snippets are called {name!r}"
            snippets[name] = ""
        else:
            snippets[name] += line
    return {name: to_python(code) for name, code in snippets.items()}


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], Corpus]:
    return load_corpus
