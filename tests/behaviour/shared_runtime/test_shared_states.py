"""States of a runtime that several authors use: no copy of the process is made for a small cell, and a state that
comes back has each author's notices, directory and names."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.behaviour.snapshots.test_cells_run_again import shared_copies
from tests.support.snapshots.fixtures import MakeRuntime, make_runtime  # noqa: F401  (a fixture)

from cenote.runtime import PythonRuntime

CRASH = "import os; os._exit(3)"
PROBE = "(x, y, kept, os.getcwd(), os.environ.get('WHO'), sys.path is path, sys.path[-1])"
CELLS = (
    "x = {n}",
    "y = x",
    "kept = [x, {n}]",
    "kept.append({n})",
    "del extra",
    "extra = {n}",
    "path = sys.path; sys.path.append('{n}')",
    "os.makedirs('d{n}', exist_ok=True); os.chdir('d{n}')",
    "os.environ['WHO'] = '{n}'",
    "class Node: n = {n}",
    "node = Node(); node.n += x",
    "node.n += {n}",
    "1 / 0",
)
SETUP = "import os, sys; x, y, kept, path = 1, 2, [], None"


def test_small_cells_of_several_authors_share_a_copy(runtime: PythonRuntime, good: Callable) -> None:
    """A copy costs several times what a small cell does."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(runtime, "x = 0")
    for n in range(5):
        good(ana, f"x = {n}")
        good(ben, f"y = [{n}]")
    assert len(runtime.snapshots()) - 1 == shared_copies(runtime) > 1  # all but the initial one


def test_cells_of_several_authors_are_run_again(runtime: PythonRuntime, good: Callable) -> None:
    """Each in its author's directory."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(runtime, "import random, os; random.seed(5); nodes = [[i] for i in range(50_000)]")
    good(ben, "os.mkdir('of_ben'); os.chdir('of_ben')")
    for number, author in enumerate((ana, ben, ana, ben)):
        good(author, f"nodes[{number}].append([random.random(), os.getcwd()])")
    before = good(ana, "nodes[:4]").value
    assert good(ben, "random.getstate()").success
    assert not ana.execute(CRASH).success
    assert before == good(ana, "nodes[:4]").value
    assert "of_ben" in good(ben, "os.getcwd()").value


def test_notices_come_once_although_the_process_has_ended(runtime: PythonRuntime, good: Callable) -> None:
    """Those that came before stay known, those that have not come yet still come."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "df, other = 1, 1")
    good(ben, "df = 2")
    assert ["df"] == [notice.name for notice in good(ana, "seen = df").notices]
    good(ben, "other = 2")
    assert not ben.execute(CRASH).success
    assert ["other"] == [notice.name for notice in good(ana, "seen = df").notices]
    assert () == good(ana, "seen").notices


def test_a_copy_of_a_private_author(runtime: PythonRuntime, good: Callable) -> None:
    """Common names that are bound after it are common names in what comes back."""
    ana, eva = runtime.attach("ana"), runtime.attach("eva", scope="private")
    good(ana, "x = 1")
    good(eva, "x = 'own'")
    good(ana, "x = 2")
    assert not ana.execute(CRASH).success
    assert ("2", "'own'") == (good(ana, "x").value, good(eva, "x").value)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(12))
def test_any_turns(make_runtime: MakeRuntime, seed: int) -> None:  # noqa: F811
    """A process that continues from a copy has what the former one would have had."""
    chance = random.Random(seed)
    turns = [(chance.randrange(4), chance.choice(CELLS).format(n=chance.randrange(300))) for _ in range(14)]
    found = [_after(make_runtime(), turns, CRASH if crashes else "pass") for crashes in (False, True)]
    assert found[0] == found[1]


def _after(runtime: PythonRuntime, turns: list[tuple[int, str]], last: str) -> list[object]:
    """Results of all turns, and what each author finds then. last: run by the last turn's author, not compared."""
    authors = [runtime, runtime.attach("ana"), runtime.attach("ben"), runtime.attach("eva", scope="private")]
    for author in authors[::3]:
        assert author.execute(SETUP).success
    found: list[object] = []
    for who, code in turns:
        found.append(_shown(authors[who], code))
    authors[turns[-1][0]].execute(last)
    found += [_shown(author, PROBE) for author in authors]
    return found


def _shown(author: PythonRuntime, code: str) -> object:
    result = author.execute(code)
    notices = [(each.name, each.author, each.step) for each in result.notices]
    return code, result.success, result.value, result.error and result.error.type, notices
