"""The console's drawings of dependencies, its values, branches, differences and merges."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.doors.browser import Browser, Page
from tests.support.doors.http_served import served

from cenote import SandboxPolicy
from cenote.doors.callers import OneCaller
from cenote.doors.console.branches import runs
from cenote.doors.open_runtimes import LocalSource, OpenRuntimes
from cenote.harness.record.step import Step
from cenote_worker.history.step import StepRecord

TOKEN = "a token of this test"
HOSTILE = (
    "</text></svg></title></pre><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\x07\u202e\u2066"
)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    runtimes = OpenRuntimes(LocalSource(SandboxPolicy(preload=())))
    with served(OneCaller(TOKEN, runtimes)) as base:
        yield base


@pytest.fixture
def browser(base: str) -> Iterator[Browser]:
    """A browser that has signed in."""
    browser = Browser(base)
    with browser.http:
        browser.open("/sign-in")
        browser.send("/sign-in", token=TOKEN)
        yield browser


@pytest.fixture
def named(base: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A runtime, ended afterwards with its branches, which are called after it."""
    name = request.node.name.partition("[")[0][:60]
    with httpx.Client(
        base_url=base, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60, trust_env=False
    ) as api:
        api.put(f"/v1/runtimes/{name}", json={}).raise_for_status()
        yield name
        for one in api.get("/v1/runtimes").json():
            if one["name"].startswith(name):
                api.delete(f"/v1/runtimes/{one['name']}").raise_for_status()


def run(browser: Browser, name: str, *cells: str) -> Page:
    for code in cells:
        browser.open(f"/runtimes/{name}")
        browser.send(f"/runtimes/{name}/run", code=code)
    return browser.page


def links(page: Page) -> set[str]:
    return {str(facts["href"]) for facts in page.all("a")}


def fork(browser: Browser, name: str, step: str = "") -> str:
    branch = f"{name}-b{step}"
    browser.open(f"/runtimes/{name}/branches")
    browser.send(f"/runtimes/{name}/fork", branch=branch, step=step)
    return branch


def is_harmless(browser: Browser) -> bool:
    """Whether nothing of HOSTILE is anything but text, and visible as it is."""
    page = browser.page
    return not (
        page.all("script")
        or page.all("img")
        or [facts for _, facts in page.tags if any(name.startswith("on") for name in facts)]
        or {"\x1b", "\x07", "\u202e", "\u2066"} & set(browser.answer.text)
    )


# -- dependencies --


def test_steps_and_the_values_between_them_are_drawn(browser: Browser, named: str) -> None:
    """Steps, and the values that another one takes, are links; what nothing takes has no box."""
    run(browser, named, "a = 1\nunused = 2", "b = a + 1", "c = a + b", "print('alone')")
    page = browser.open(f"/runtimes/{named}/dependencies")
    (drawing, *_) = page.all("svg")
    assert drawing["aria-label"]
    steps = f"/runtimes/{named}/steps"
    wanted = {f"{steps}/{each}" for each in ("1", "2", "3", "1/value?name=a", "2/value?name=b")}
    assert wanted <= links(page)
    assert f"{steps}/1/value?name=unused" not in links(page)
    assert "Without a value from or for another of these: 4" in page.text
    for link in wanted:
        browser.open(link)


def test_the_steps_around_one_are_drawn(browser: Browser, named: str) -> None:
    run(browser, named, "a = 1", "b = a", "x = 1", "y = x", "c = b")
    page = browser.open(f"/runtimes/{named}/dependencies?step=2")
    assert "3 of 5 steps" in page.text
    steps = f"/runtimes/{named}/steps"
    assert {f"{steps}/1", f"{steps}/2", f"{steps}/5"} <= links(page)
    assert f"{steps}/3" not in links(page)
    browser.open(f"/runtimes/{named}/dependencies?step=99", status=404)
    for odd in ("x", "-1", "9" * 30, "\u00b2"):
        browser.open(f"/runtimes/{named}/dependencies?step={odd}&before={odd}")


def test_many_steps_are_many_drawings(browser: Browser, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page's steps took from steps before is drawn, too."""
    monkeypatch.setattr("cenote.doors.console.graph.STEPS_OF_A_GRAPH", 2)
    run(browser, named, "a = 1", "b = a", "c = b", "d = a + c")
    page = browser.open(f"/runtimes/{named}/dependencies")
    assert "2 of 4 steps" in page.text
    steps = f"/runtimes/{named}/steps"
    assert {f"{steps}/{each}" for each in (1, 2, 3, 4)} <= links(page)
    page = browser.open(f"/runtimes/{named}/dependencies?before=2")
    assert {f"{steps}/1", f"{steps}/2"} == {
        each for each in links(page) if re.fullmatch(rf"{steps}/\d+", each)
    }


def test_a_value_shows_what_made_it(browser: Browser, named: str) -> None:
    """The statement that wrote it, the program that gives it again, and what depends on it."""
    run(browser, named, "a = 1\nnoise = 2", "b = a + 1\nother = 3", "c = b")
    page = browser.open(f"/runtimes/{named}/steps/3/value?name=b")
    assert "Step 2" in page.text
    assert "<mark>b = a + 1</mark>" in browser.answer.text
    program = page.text.partition("Program")[2]
    assert "a = 1" in program
    assert "b = a + 1" in program
    assert "noise" not in program
    assert "Steps 3, and of what is there after step 3: c" in page.text
    browser.open(f"/runtimes/{named}/steps/3/value?name=nothing", status=404)
    browser.open(f"/runtimes/{named}/steps/9/value?name=b", status=404)


def test_a_step_names_what_it_wrote(browser: Browser, named: str) -> None:
    run(browser, named, "a = 1")
    assert f"/runtimes/{named}/steps/1/value?name=a" in links(browser.open(f"/runtimes/{named}/steps/1"))


# -- branches --


def test_a_tree_of_states(browser: Browser, named: str) -> None:
    """Lines that were left, kept states, the state now, and branches; and back to a kept state from there."""
    run(browser, named, "x = 1", "x = 2")
    browser.open(f"/runtimes/{named}/branches")
    browser.send(f"/runtimes/{named}/steps/1/rollback")
    run(browser, named, "x = 3")
    branch = fork(browser, named)
    assert "Forked from" in browser.open(f"/runtimes/{branch}/branches").text
    page = browser.open(f"/runtimes/{named}/branches")
    drawn = [str(facts.get("class", "")) for facts in page.all("svg")]
    assert ["step ", "step ", "step left", "step head", "values "] == drawn[1:]
    assert f"/runtimes/{branch}" in links(page)
    assert "now: after step 3" in page.text
    browser.send(f"/runtimes/{named}/steps/2/rollback")
    assert "Value 2" in run(browser, named, "x").text


@given(st.lists(st.integers(0, 30), max_size=40), st.sets(st.integers(1, 40)))
def test_runs_are_all_steps_once(parents: list[int], ends: set[int]) -> None:
    """Each follows the one before it; a run ends where the tree forks, at an end that was asked for, or at a leaf."""
    steps = [
        Step(StepRecord(number=number, parent=min(parent, number - 1)))
        for number, parent in enumerate(parents, 1)
    ]
    found = runs(steps, ends)
    of = {step.number: step for step in steps}
    assert sorted(of) == sorted(number for run in found for number in run.steps)
    children = Counter(step.parent for step in steps)
    for run in found:
        assert run.parent == of[run.steps[0]].parent
        for before, after in itertools.pairwise(run.steps):
            assert of[after].parent == before
            assert children[before] == 1
            assert before not in ends
        assert children[run.last] != 1 or run.last in ends


def test_a_fork_after_a_step(browser: Browser, named: str) -> None:
    run(browser, named, "x = 1", "x = 2")
    branch = fork(browser, named, "1")
    assert "Value 1" in run(browser, branch, "x").text
    browser.open(f"/runtimes/{named}/branches")
    assert "Not possible" in browser.send(f"/runtimes/{named}/fork", status=409, branch=branch).text
    browser.open(f"/runtimes/{named}/branches")
    browser.send(f"/runtimes/{named}/fork", status=400, branch="a/b")


def test_two_states_side_by_side(browser: Browser, named: str) -> None:
    """Variables by type and shape, files, what ran since; of one runtime, and of two."""
    run(
        browser,
        named,
        "x = 1\ngone = 1",
        "x = [1, 2]\ndel gone\nopen('made.txt', 'w').write('1')\nprint('said')",
    )
    page = browser.open(f"/runtimes/{named}/diff?a=1&b=2")
    assert "gone removed int" in page.text
    assert re.search(r"x changed int .*step 1 list \(2,\)", page.text)
    assert "file:made.txt added" in page.text
    assert "said" in page.text
    branch = fork(browser, named, "1")
    run(browser, branch, "x = 'text'")
    page = browser.open(f"/runtimes/{named}/diff?a=2&with={branch}")
    assert "Both have the steps up to 1" in page.text
    assert re.search(r"x changed list \(2,\).*step 2 str", page.text)
    assert "file:made.txt removed" in page.text
    page = browser.open(f"/runtimes/{named}/diff?a=1&with={branch}&b=1")
    assert "No variable and no file is known to differ" in page.text
    for odd in ("a=99", "a=1&b=99", "a=1&with=no-such"):
        browser.open(f"/runtimes/{named}/diff?{odd}", status=404)


def test_conflicts_are_shown_before_a_merge(browser: Browser, named: str) -> None:
    """Nothing is merged before one side is chosen."""
    run(browser, named, "both = 1\nmine = 1")
    branch = fork(browser, named)
    run(browser, branch, "both = 'theirs'\nmade = [1]")
    run(browser, named, "both = 2.5")
    path = f"/runtimes/{named}/merge"
    page = browser.open(f"{path}?branch={branch}")
    assert "both float" in page.text
    assert "made" in page.text
    for choice, status in (("", 400), ("refuse", 409)):
        browser.send(path, status=status, on_conflict=choice)
        browser.open(f"{path}?branch={branch}")
    page = browser.send(path, on_conflict="theirs")
    assert "Merged" in page.text
    assert "('theirs', 1, [1])" in run(browser, named, "both, mine, made").text


def test_a_merge_that_is_out_of_date_is_not_carried_out(browser: Browser, named: str) -> None:
    """What was shown is not what would be merged now."""
    run(browser, named, "x = 1")
    branch = fork(browser, named)
    run(browser, branch, "x = 2")
    path = f"/runtimes/{named}/merge"
    browser.open(f"{path}?branch={branch}")
    shown = browser.page.forms
    run(browser, branch, "x = 3")
    browser.page.forms = shown
    page = browser.send(path)
    assert "nothing was merged" in page.text
    page = browser.send(path)
    assert "Merged" in page.text
    assert "Value 3" in run(browser, named, "x").text


def test_some_names_of_a_branch_are_merged(browser: Browser, named: str) -> None:
    """Conflicts come first. Other names and files stay as they are; nothing is taken where nothing is chosen."""
    run(browser, named, "both = other = gone = 1\nopen('file', 'w').write('mine')")
    branch = fork(browser, named)
    run(browser, branch, "both = other = 'theirs'\na_new = [1]\ndel gone\nopen('file', 'w').write('theirs')")
    run(browser, named, "both = other = 2.5")
    page = browser.open(f"/runtimes/{named}/merge?branch={branch}")
    chosen = [str(facts["name"]) for facts in page.all("input") if facts.get("type") == "checkbox"]
    assert ["take:both", "take:other", "take:a_new"] == chosen
    path = f"/runtimes/{named}/merge/names"
    unchosen = {
        each: {key: value for key, value in page.forms[each].items() if key not in chosen}
        for each in page.forms
    }
    browser.page.forms = unchosen
    assert "choose at least one" in browser.send(path, status=400).text
    browser.page.forms = unchosen
    page = browser.send(path, **{"take:both": "on", "take:a_new": "on"})
    assert "Merged" in page.text
    shown = run(browser, named, "both, other, a_new, gone, open('file').read()").text
    assert "('theirs', 2.5, [1], 1, 'mine')" in shown


def test_what_is_no_branch_is_not_merged(browser: Browser, named: str) -> None:
    run(browser, named, "x = 1")
    assert "Not possible" in browser.open(f"/runtimes/{named}/merge?branch={named}", status=400).text
    browser.open(f"/runtimes/{named}/merge?branch=no-such", status=404)


# -- what is hostile --


def test_names_and_outputs_of_a_jail_stay_text(browser: Browser, named: str) -> None:
    """In drawings, on pages of values, of differences and of merges."""
    run(
        browser,
        named,
        f"globals()[{HOSTILE!r}] = [1]\nprint({HOSTILE!r})",
        f"y = globals()[{HOSTILE!r}]  # {HOSTILE[:40]}",
    )
    branch = fork(browser, named)
    odd = "class Odd: pass\nOdd.__qualname__ = Odd.__name__ = text\nodd = Odd()"
    change = f"text = {HOSTILE!r}\nglobals()[text] = {{text: 1}}\n{odd}"
    run(browser, branch, change)
    run(browser, named, f"globals()[{HOSTILE!r}] = 3")
    browser.open(f"/runtimes/{named}")
    browser.send(f"/runtimes/{named}/snapshots", label=HOSTILE[:60])
    for path in (
        f"/runtimes/{named}/dependencies",
        f"/runtimes/{named}/dependencies?step=1",
        f"/runtimes/{named}/steps/2/value?name={quote(HOSTILE)}",
        f"/runtimes/{named}/branches",
        f"/runtimes/{named}/diff?a=1&with={branch}",
        f"/runtimes/{named}/merge?branch={branch}",
    ):
        browser.open(path)
        assert is_harmless(browser), path
        assert "alert(1)" in browser.page.text, path


def test_names_without_a_bound_give_small_pages(browser: Browser, named: str) -> None:
    """A name of a megabyte, and a thousand names."""
    run(
        browser,
        named,
        "globals()['x' * 1_000_000] = 1",
        "y = globals()['x' * 1_000_000]",
        "for each in range(1000): globals()[f'{each:0500}'] = each",
        "z = [globals()[f'{each:0500}'] for each in range(1000)]\n'v' * 1_000_000",
    )
    for path in (
        "",
        "/dependencies",
        "/steps/1",
        "/steps/3",
        "/steps/4",
        "/branches",
        "/diff?a=0&b=4",
        "/diff?a=2&b=3",
    ):
        browser.open(f"/runtimes/{named}{path}")
        assert len(browser.answer.content) < 300_000, path
