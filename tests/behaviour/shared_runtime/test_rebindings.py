"""Notices: changes by others to a name that an author has bound or used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.runtime import PythonRuntime
from cenote_worker.execution.results import Notice
from cenote_worker.jail.cells.source import CellCompiler
from cenote_worker.jail.process.authors import MAX_NOTICES, Rebindings, names_in

pytestmark = pytest.mark.usefixtures("where")

# -- in a runtime --


@pytest.mark.at("embedded", "platform", "relayed")
def test_a_name_that_was_rebound(runtime: PythonRuntime, good: Callable) -> None:
    """The author of a name gets one notice of who rebound it, and where; the one who did gets none."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "df = [1]")
    assert () == good(ben, "df = [2]").notices
    told = good(ana, "len(df)").notices
    assert (Notice(name="df", author="ben", step=2),) == told
    assert "`df` was rebound by ben in step 2" == str(told[0])
    assert () == good(ana, "len(df)").notices


def test_a_name_that_was_only_used(runtime: PythonRuntime, good: Callable) -> None:
    """In a function's body, or as `shared.name`, too; names that an author never used cause no notice."""
    ana, ben, eva = runtime.attach("ana"), runtime.attach("ben"), runtime.attach("eva", scope="private")
    good(runtime, "rate, other = [1], [2]")
    good(ana, "def price():\n    return rate")
    good(eva, "shared.rate")
    good(ben, "rate, other = [3], [4]")
    for who in (ana, eva):
        assert ["rate"] == [notice.name for notice in who.execute("1").notices]
    assert ["rate", "other"] == [notice.name for notice in runtime.execute("1").notices]


def test_private_names_concern_nobody(runtime: PythonRuntime, good: Callable) -> None:
    """A private name is different from the common one with the same spelling."""
    ana, eva = runtime.attach("ana"), runtime.attach("eva", scope="private")
    good(ana, "x = [1]")
    good(eva, "x = [2]")
    assert () == good(ana, "x").notices
    good(ana, "x = [3]")
    assert () == good(eva, "x").notices


@pytest.mark.at("embedded", "platform")
def test_a_private_author_binds_a_common_name(runtime: PythonRuntime, good: Callable) -> None:
    """`shared.x = ...` is a rebinding like any other."""
    ana, eva = runtime.attach("ana"), runtime.attach("eva", scope="private")
    good(ana, "x = [1]")
    good(eva, "shared.x = [2]")
    assert ["`x` was rebound by eva in step 2"] == [str(notice) for notice in good(ana, "x").notices]


@pytest.mark.at("embedded", "platform")
def test_deleted_and_replaced_from_outside(runtime: PythonRuntime, good: Callable) -> None:
    """Deletions count, and so do changes outside cells: these have no step number."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "x, y, z = [1], [2], [3]")
    ben.delete("x")
    runtime.update_variable("y", 5)
    good(ben, "del z")
    assert [
        "`x` was deleted by ben",
        "`y` was rebound by the owner of the runtime",
        "`z` was deleted by ben in step 4",
    ] == [str(notice) for notice in ana.execute("1").notices]


def test_a_failing_cell_has_notices(runtime: PythonRuntime, good: Callable) -> None:
    """They may be the cause of the failure."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "rows = [1]")
    good(ben, "rows = None")
    failed = ana.execute("rows[0]")
    assert ("TypeError", ["rows"]) == (failed.error.type, [notice.name for notice in failed.notices])


def test_equal_values_and_same_objects(runtime: PythonRuntime, good: Callable) -> None:
    """An equal value is a new binding if it is a different object; a change in place is none."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "a, b = [1], [1]")
    good(ben, "a = [1]; b.append(2); b = b")
    assert ["a"] == [notice.name for notice in good(ana, "1").notices]


def test_a_counter_that_runs_in_place(runtime: PythonRuntime, good: Callable) -> None:
    """Numbers made in a loop reuse each other's memory, and may end at the first address; it is noticed."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "total = 10**9")
    good(ben, "for _ in range(101): total += 1")
    assert ["total"] == [notice.name for notice in good(ana, "1").notices]


def test_no_notices_without_a_second_author(runtime: PythonRuntime, good: Callable) -> None:
    """An owner alone gets no notices, and nothing is compared."""
    good(runtime, "x = 1")
    assert () == good(runtime, "x = 2").notices


# -- by itself --


def test_at_most_so_many_at_once() -> None:
    """The rest comes with the next cell: nothing is lost."""
    names = {f"name{number}": [number] for number in range(MAX_NOTICES + 1)}
    namespace: dict[str, object] = dict(names)
    rebindings = Rebindings(namespace)
    namespace.update({name: [] for name in names})
    rebindings.settle("ben", 1)
    first, second = rebindings.news(""), rebindings.news("")
    assert (MAX_NOTICES, 1, ()) == (len(first), len(second), rebindings.news(""))
    assert set(names) == {notice.name for notice in (*first, *second)}


def test_a_new_value_is_not_taken_for_the_old_one() -> None:
    """A small value is kept until the next comparison, so that no new value gets its address."""
    namespace: dict[str, object] = {"n": int("1000000000")}
    rebindings = Rebindings(namespace)
    address = id(namespace.pop("n"))
    fresh = [int(f"2000000{number}") for number in range(1_000)]
    namespace["n"] = next((value for value in fresh if id(value) == address), fresh[0])
    rebindings.settle("ben", 1)
    assert (Notice(name="n", author="ben", step=1),) == rebindings.news("")


def test_names_that_are_no_names(runtime: PythonRuntime, good: Callable) -> None:
    """A key whose hash and equality are a cell's own code is skipped, and does not affect later cells."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(
        ana,
        "class Key(str):\n    armed = False\n    def __hash__(self):\n        return 1 // (not Key.armed)",
    )
    good(ana, "x = [1]\nglobals()[Key('x')] = globals()[5] = [2]\nKey.armed = True")
    good(ben, "x = [2]")
    assert ["x"] == [notice.name for notice in good(ana, "1").notices]


AUTHORS = st.sampled_from(["", "ana", "ben"])
TURNS = st.lists(st.tuples(AUTHORS, st.sampled_from("xyz"), st.sampled_from(["bind", "use", "delete"])))


@given(TURNS)
def test_an_author_hears_of_others_alone(turns: list[tuple[str, str, str]]) -> None:
    """Notices name changes by others after the author last bound or used the name, and the last author of each."""
    namespace: dict[str, object] = {}
    rebindings = Rebindings(namespace)
    last: dict[str, tuple[int, str]] = {}
    relied: dict[tuple[str, str], int] = {}
    for step, (author, name, act) in enumerate(turns, 1):
        expected = {
            (other, *last[other])
            for other in last
            if last[other][1] != author and last[other][0] > relied.get((author, other), step)
        }
        news = rebindings.news(author)
        assert expected == {(notice.name, notice.step, notice.author) for notice in news}
        for notice in news:
            relied[author, notice.name] = step
        if act == "bind" or (act == "delete" and name in namespace):
            last[name] = step, author
            relied[author, name] = step
        elif act == "use" and name in namespace:
            relied[author, name] = step
        if act == "bind":
            namespace[name] = object()
        elif act == "delete":
            namespace.pop(name, None)
        rebindings.settle(author, step, [name] if act == "use" else [])


def test_the_names_that_a_cell_speaks_of() -> None:
    """Both parts of the cell, functions and classes in it, and attributes."""
    code = "import os\ndef f():\n    class C:\n        y = lambda: deep\n    return top\nshared.df\nlast(1)"
    assert {"os", "f", "top", "deep", "shared", "df", "last"} <= names_in(
        CellCompiler(keep=1).compile(code, 1)
    )
