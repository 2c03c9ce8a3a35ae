"""Unknown libraries: a step changes a library's internal state, and a later step depends on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cenote.harness import ApplyOptions, Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

_SAID = re.compile(r"\+ (.+)\n- (.+)\n\?\? (.+) -> (.+), (\d+)( !)?\s*\Z")


@dataclass(frozen=True, kw_only=True)
class Library:
    """files: its modules. change, instead: the code of a step, and its code after the patch. ask: an expression of a
    later step; before, after: its values. for_all: any step may meet what was changed.
    """

    name: str
    files: dict[str, str]
    change: str
    instead: str
    ask: str
    before: str
    after: str
    for_all: bool


def _library(text: str) -> Library:
    name, _, text = text.partition("\n")
    said = _SAID.search(text)
    assert said is not None
    source, *others = re.split(r"(?m)^-- ", text[: said.start()])
    files = {"__init__": source} | {part.partition("\n")[0]: part.partition("\n")[2] for part in others}
    return Library(
        name=name,
        files={f"{name}/{key}.py": part for key, part in files.items()},
        change=said[1],
        instead=said[2],
        ask=said[3],
        before=said[4],
        after=said[5],
        for_all=said[6] is not None,
    )


_TEXT = (Path(__file__).resolve().parents[2] / "support" / "soundness" / "made_up_libraries.txt").read_text()
LIBRARIES = tuple(map(_library, re.split(r"(?m)^== ", _TEXT)[1:]))

SETUP = """
import sys
from pathlib import Path
home = Path("site-packages").resolve()
for path, text in {files!r}.items():
    (home / path).parent.mkdir(parents=True, exist_ok=True)
    (home / path).write_text(text)
sys.path.insert(0, str(home))
"""


def _files() -> dict[str, str]:
    return {path: text for library in LIBRARIES for path, text in library.files.items()}


@pytest.fixture(scope="module")
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        cells = [SETUP.format(files=_files()), *(f"import {each.name}" for each in LIBRARIES), "first = 1"]
        for cell in cells:
            assert runtime.execute(cell).success
        yield runtime


@pytest.mark.sweep
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_a_step_that_asks_is_run_again(library: Library, runtime: PythonRuntime) -> None:
    """A step that does not depend on it does not run again, though it uses another library."""
    changing = runtime.execute(library.change)
    between = runtime.execute("second = first + 1")
    asking = runtime.execute(f"answer = {library.ask}")
    assert changing.success, changing.error
    assert asking.success, asking.error
    assert library.before == runtime.execute("answer").value
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(changing.step, library.instead)), ApplyOptions())
    assert result.status == "applied"
    assert library.after == runtime.execute("answer").value
    assert {changing.step, asking.step} <= set(result.steps_rerun)
    assert library.for_all == (between.step in result.steps_rerun)


@pytest.mark.sweep
@pytest.mark.parametrize("library", LIBRARIES[:8], ids=lambda library: library.name)
def test_a_step_that_only_asks_changes_nothing(library: Library, runtime: PythonRuntime) -> None:
    """So that later reads need not be run again."""
    runtime.execute(f"answer = {library.ask}")
    asking = runtime.execute(f"one = {library.ask}")
    later = runtime.execute(f"two = {library.ask}")
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(asking.step, "one = 0")), ApplyOptions())
    assert (asking.step,) == result.steps_rerun, later.step
