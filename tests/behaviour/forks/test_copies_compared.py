"""Each copy of a state by value is compared with the original: differences are named before the copy is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cenote import CaveAgent
from cenote.models import ScriptedModel
from cenote.runtime import Fidelity, PythonRuntime, foretold

Make = Callable[..., PythonRuntime]
Fork = Callable[..., list[PythonRuntime]]

LOSING = """
import ipaddress
net = ipaddress.ip_network('10.0.0.0/8')
assert net.hostmask
"""
"""An object whose library omits computed attributes from its pickle."""


def forecast(make: Make, store: Path, *cells: str) -> tuple[PythonRuntime, Fidelity]:
    runtime = make(store=store, name="r")
    for cell in cells:
        result = runtime.execute(cell)
        assert result.success, result.error
    runtime.checkpoint("here")
    return runtime, foretold(store, "r")


def names(things: object) -> set[str]:
    assert isinstance(things, tuple)
    return {thing.name for thing in things}


def about(lines: tuple[str, ...], start: str) -> str:
    """The one line about a thing."""
    (line,) = [line for line in lines if line.startswith(f"{start}: ")]
    return line


@pytest.mark.usefixtures("by_value")
def test_what_a_pickle_drops_is_named_by_all_who_copy(make: Make, fork: Fork, tmp_path: Path) -> None:
    """Before use: by the forecast and the branch. To a model: with the first cell, once."""
    source, expected = forecast(make, tmp_path, LOSING, "plain = [1, 2]")
    lost = "net: net.hostmask is not in a copy"
    assert ({"net"}, True) == (names(expected.differing), expected.complete)
    assert f"differing: {lost}" in str(expected).splitlines()
    assert {"plain", "ipaddress"} <= {*expected.exact}
    assert "net" not in expected.exact
    (branch,) = fork(source)
    assert branch.carried is not None
    assert ("rebuilt", (lost,)) == (branch.carried.how, branch.carried.differing)
    first, second = branch.execute("plain"), branch.execute("plain")
    assert ([lost], []) == ([line.partition(": ")[2] for line in first.news], [*second.news])
    source.hibernate()
    woken = source.execute("'hostmask' in vars(net)")
    assert ("False", f"not as in the state that was copied: {lost}") == (woken.value, *woken.news)
    source.close()
    with PythonRuntime.restore(tmp_path, "r", "here") as restored:
        assert [lost] == [line.partition(": ")[2] for line in restored.execute("plain").news]


def test_a_copy_that_is_equal_has_no_news(make: Make, fork: Fork, tmp_path: Path) -> None:
    """Numbers, texts, containers, arrays, frames, functions, classes, generators of numbers, shared objects."""
    source, expected = forecast(
        make,
        tmp_path,
        "import numpy as np, collections, dataclasses, random, datetime, decimal, re\n"
        "numbers, text, table = [1, 2.5, None], 'text', {'a': [1], 'b': {'c': (1, 2)}}\n"
        "same, counted = numbers, collections.Counter('hello')\n"
        "array = np.arange(200_000.0); view = array[5:10]; masked = np.ma.array([1, 2], mask=[0, 1])\n"
        "drawing, legacy = np.random.default_rng(1), random.Random(2)\n"
        "day, amount, pattern = datetime.date(2020, 1, 1), decimal.Decimal('1.5'), re.compile('a+')\n"
        "def outer():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n"
        "    return up\n"
        "up = outer(); up()\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int = 0\npoints = [Point(1), Point(2)]\n",
        "import warnings; warnings.simplefilter('ignore')\nnp.set_printoptions(precision=3)",
    )
    assert ((), ()) == (expected.differing, expected.uncompared)
    (branch,) = fork(source)
    assert branch.carried is not None
    assert ((), ()) == (branch.carried.differing, branch.execute("1").news)
    source.close()
    with PythonRuntime.restore(tmp_path, "r") as restored:
        assert () == restored.execute("1").news


def test_what_was_set_in_a_library_is_named(make: Make, fork: Fork, tmp_path: Path) -> None:
    """An attribute, and a library's internal generator of numbers."""
    source, expected = forecast(
        make, tmp_path, "import calendar, json", "calendar.setfirstweekday(6)", "json.tries = open"
    )
    unsure = names(expected.differing) | names(expected.uncompared)
    assert (True, False) == (any("calendar" in each for each in unsure), "json.tries" in unsure), expected
    (branch,) = fork(source)
    there = branch.execute("calendar.firstweekday(), hasattr(json, 'tries')")
    told = " ".join(there.news)
    for what, lost in (("calendar", "(0, " in str(there.value)), ("json.tries", "False" in str(there.value))):
        assert not lost or what in told, (there.value, told)


@pytest.mark.usefixtures("by_value")
def test_settings_that_are_not_carried_are_named(make: Make, fork: Fork, tmp_path: Path) -> None:
    """State of a library that is not carried."""
    source, expected = forecast(
        make, tmp_path, "import numpy.ma", "numpy.ma.masked_print_option.set_display('?')"
    )
    assert "the state of numpy.ma" in names(expected.differing)
    (branch,) = fork(source)
    assert about(branch.carried.differing, "the state of numpy.ma")  # type: ignore[union-attr]


def test_an_object_of_a_library_is_the_one_that_the_library_has(
    make: Make, fork: Fork, tmp_path: Path
) -> None:
    """A copy of it would not be the object that the library uses."""
    source, expected = forecast(
        make, tmp_path, "import calendar\nkept = [getattr(calendar, 'c')]\nown = [calendar.TextCalendar()]"
    )
    assert ((), True) == (expected.differing, {"kept", "own"} <= {*expected.exact})
    (branch,) = fork(source)
    assert "(True, False)" == branch.execute("kept[0] is calendar.c, own[0] is calendar.c").value


@pytest.mark.usefixtures("by_value")
def test_what_cannot_be_looked_into_is_not_called_exact(make: Make, fork: Fork, tmp_path: Path) -> None:
    """It exists; whether it is unchanged is unknown."""
    source, expected = forecast(make, tmp_path, "import re\nfound = re.match('a+', 'aab')\nplain = 1")
    assert ({"found"}, {"plain", "re"}) == (names(expected.uncompared), {*expected.exact})
    (branch,) = fork(source)
    assert ("not compared with the original: found",) == branch.carried.differing  # type: ignore[union-attr]
    assert "'aa'" == branch.execute("found.group()").value


def test_trying_a_copy_touches_nothing_outside(make: Make, tmp_path: Path) -> None:
    """Code that rebuilds a value may write files: not those of the copied runtime."""
    source, expected = forecast(
        make,
        tmp_path,
        "class Log:\n    def __reduce__(self):\n        return begun, ()\n"
        "def begun():\n    open('log.txt', 'w').close()\n    return Log()\n"
        "log = Log()\nopen('log.txt', 'w').write('kept')",
    )
    assert "log" in names(expected.uncompared)
    assert "'kept'" == source.execute("open('log.txt').read()").value


@pytest.mark.slow
def test_code_that_never_ends_does_not_hold_a_copy_up(make: Make, fork: Fork, tmp_path: Path) -> None:
    """Values not tried in time are not called exact; earlier ones are."""
    _, expected = forecast(
        make,
        tmp_path,
        "import time\nfirst = [1]\n"
        "class Slow:\n    def __reduce__(self):\n        return wait, (time,)\n"
        "def wait(time):\n    time.sleep(100)\nslow = Slow()",
    )
    assert ("slow" in names(expected.uncompared), "first" in expected.exact) == (True, True)


@pytest.mark.usefixtures("by_value")
def test_temporary_files_come_along_or_are_named(make: Make, fork: Fork, tmp_path: Path) -> None:
    """A pipe cannot. Files of libraries' caches are not reported."""
    source, expected = forecast(
        make,
        tmp_path,
        "import os, tempfile\npath = tempfile.gettempdir() + '/mine'\nopen(path, 'w').write('x')\n"
        "os.mkfifo(tempfile.gettempdir() + '/pipe')",
    )
    assert {"/pipe"} == {thing.name[-5:] for thing in expected.differing}
    (branch,) = fork(source)
    assert [True] == ["/pipe: " in line for line in branch.carried.differing]  # type: ignore[union-attr]
    assert "'x'" == branch.execute("open(path).read()").value


def test_what_is_known_of_a_value_is_not_found_out_again(make: Make, tmp_path: Path) -> None:
    """Changed values are compared again."""
    source, _ = forecast(make, tmp_path, LOSING, "plain = [1]")
    source.execute("plain.append(2)\ndel net.hostmask")
    source.checkpoint("later")
    assert ((), True) == (foretold(tmp_path, "r").differing, "net" in foretold(tmp_path, "r").exact)
    source.execute("assert net.hostmask")
    source.checkpoint("last")
    assert {"net"} == names(foretold(tmp_path, "r").differing)
    source.checkpoint("again")
    assert {"net"} == names(foretold(tmp_path, "r").differing)


@pytest.mark.usefixtures("by_value")
def test_a_model_reads_it_before_its_first_cell(make: Make, fork: Fork) -> None:
    """In the system prompt."""
    source = make()
    source.execute(LOSING)
    (branch,) = fork(source)
    model = ScriptedModel(["done"])
    agent = CaveAgent(model, runtime=branch)
    agent.run_sync("go on")
    prompt = model.prompts[0][0].content
    assert "net: net.hostmask is not in a copy" in prompt
