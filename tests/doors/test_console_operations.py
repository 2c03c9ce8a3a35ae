"""Pages of a platform in the console: jobs, teams, references, the network, the audit log, the fleet, the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.doors.browser import Browser
from tests.doors.console_platform import BARE, ConsolePlatform, console_platform
from tests.doors.http_served import served
from tests.waiting import until

from cenote.doors.callers import OneCaller
from cenote.doors.open_runtimes import LocalSource, OpenRuntimes
from cenote_security.auth.tokens import Scope

pytestmark = pytest.mark.slow

SMALL = 300_000
"""Bytes of a page."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsolePlatform]:
    with console_platform(tmp_path_factory.mktemp("console")) as made:
        yield made


@pytest.fixture
def browser(here: ConsolePlatform) -> Iterator[Browser]:
    with here.browser() as signed_in:
        yield signed_in


def test_a_job_with_the_causes_of_its_failures(browser: Browser) -> None:
    assert "sort done" in browser.open("/jobs").text
    page = browser.open("/jobs/sort")
    assert "5 of 5" in page.text
    assert "2 KeyError task task" in page.text
    assert "Retry 3 failed" in page.text
    assert "t2" not in browser.open("/jobs/sort?state=succeeded").text.partition("Tasks all")[2]
    later = browser.open("/jobs/sort?after=3&state=failed").text.rpartition("Took")[2]
    assert ["t4"] == re.findall(r"\bt\d", later)
    browser.open("/jobs/sort?state=odd", status=400)


def test_a_task_with_its_cell_and_log(browser: Browser) -> None:
    page = browser.open("/jobs/sort/tasks/t2")
    assert "{}['key']" in page.text
    assert "KeyError: 'key'" in page.text
    assert "Traceback" in page.text
    for path in ("/jobs/none", "/jobs/sort/tasks/none"):
        assert "Not found" in browser.open(path, status=404).text


def test_retry_and_cancel(here: ConsolePlatform, browser: Browser) -> None:
    """One task, then a job that runs. A form without the session's key does nothing."""
    tasks = [{"id": "a/b", "code": "1 / 0"}, {"id": "c", "code": "2 / 0"}]
    here.client.jobs.submit(tasks, name="again", sandbox=BARE).wait(60)
    browser.open("/jobs/again/tasks/a%2Fb")
    browser.send("/jobs/again/retry", status=403, form_key="guess")
    browser.open("/jobs/again/tasks/a%2Fb")
    browser.send("/jobs/again/retry")
    job = here.client.jobs.get("again")
    assert 1 == job.wait(60).revision
    assert [2, 1] == [task.attempts for task in job.tasks()]
    loops = here.client.jobs.submit([{"code": "while True: pass"}], name="loops", sandbox=BARE)
    until(lambda: loops.status().running)
    browser.open("/jobs/loops")
    browser.send("/jobs/loops/cancel")
    assert "cancelled" == loops.wait(60).state
    assert "refresh" not in str(browser.open("/jobs/loops").all("meta"))


def test_a_team_with_what_its_calls_took(browser: Browser) -> None:
    """The conversation beside the cells; tokens of each call against the budget; what was handed over."""
    assert "pipeline done" in browser.open("/teams").text
    page = browser.open("/teams/pipeline")
    (total,) = re.findall(r"Tokens (\d+) of 50000", page.text)
    calls = re.findall(r"counter model [\d.]+ m?s (\d+) (\d+) \$", page.text)
    assert 2 == len(calls)
    assert int(total) == sum(int(part) for call in calls for part in call)
    assert re.search(r"counter cell [\d.]+ m?s", page.text)
    assert "found = 41 + 1" in page.text
    assert re.search(r"counter count them done int ref_\w+ 28 B", page.text)
    kinds = [tag["class"] for tag in page.all("li") if str(tag.get("id")).startswith("event-")]
    assert {"said", "cell"} == {*kinds}
    assert "found = 41 + 1" in browser.open("/teams/pipeline/events/4").text
    browser.open("/teams/pipeline/events/99", status=404)
    browser.open("/teams/none", status=404)


def test_who_holds_what(browser: Browser) -> None:
    page = browser.open("/references")
    assert re.search(r"ref_\w+ list 1000 2.8 KiB 1: \w+ rt_\w+, step 2", page.text)
    assert re.search(r"1: team tm_\w+, done", page.text)


def test_what_was_asked_of_the_network_and_refused(browser: Browser) -> None:
    text = until(lambda: found if "elsewhere.test" in (found := browser.open("/network").text) else "")
    assert "http elsewhere.test 80 refused elsewhere.test:80 is not on the allow-list" in text
    assert "elsewhere.test" in browser.open("/network?refused=1").text


def test_the_audit_log_with_its_chain(here: ConsolePlatform, browser: Browser) -> None:
    assert "runtime.created" in browser.open("/audit").text
    page = browser.send("/audit/verify")
    assert re.search(r"All \d+ entries are as they were written", page.text)
    assert "runtime.created" not in browser.open("/audit?kind=network").text
    browser.open("/audit?page=../../1", status=400)
    first = here.client.audit(limit=2)
    second = here.client.audit(limit=2, page=first.following)
    numbers = [record.number for record in (*first.records, *second.records)]
    assert 4 == len(numbers)
    assert sorted(numbers, reverse=True) == numbers


def test_the_fleet_and_the_machine(browser: Browser) -> None:
    page = until(lambda: found if "Runtimes by state" in (found := browser.open("/fleet")).text else None)
    assert "local" in page.text
    assert page.all("polyline")
    page = until(lambda: found if "level strict" in (found := browser.open("/doctor")).text else None)
    assert "namespaces yes" in page.text
    assert "first result after" in browser.send("/doctor").text


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/jobs", "jobs"),
        ("/jobs/sort", "jobs"),
        ("/teams", "teams"),
        ("/teams/pipeline", "teams"),
        ("/references", "references"),
        ("/network", "admin"),
        ("/audit", "admin"),
        ("/doctor", "machines"),
    ],
)
def test_a_page_says_which_scope_a_token_lacks(here: ConsolePlatform, path: str, scope: str) -> None:
    with here.browser(here.limited(Scope.RUNTIMES_READ)) as viewer:
        page = viewer.open(path, status=403)
        assert f"no scope '{scope}'" in page.text
        assert "take a token with the scope machines" in viewer.open("/fleet").text
        assert not viewer.page.all("polyline")


def test_a_server_without_a_platform_says_so() -> None:
    with served(OneCaller("token", OpenRuntimes(LocalSource(BARE)))) as base:
        browser = Browser(base)
        with browser.http:
            browser.open("/sign-in")
            browser.send("/sign-in", token="token")
            for path in ("/jobs", "/teams", "/references", "/network", "/audit"):
                assert "only a platform has this" in browser.open(path, status=400).text
            until(lambda: "Cells by outcome" in browser.open("/fleet").text)
            until(lambda: "level strict" in browser.open("/doctor").text)


PAGES = (
    *("/", "/fleet", "/jobs", "/jobs/sort", "/jobs/sort/tasks/t4", "/jobs/sort/tasks/t5", "/teams"),
    *("/teams/pipeline", "/teams/pipeline/events/5", "/references", "/network", "/audit", "/doctor"),
)


def test_hostile_text_stays_text(browser: Browser) -> None:
    """What tasks print and raise, what a model says: on each page that shows it."""
    shown = 0
    for path in PAGES:
        page = browser.open(path)
        assert not page.all("script")
        assert not page.all("img")
        assert not page.all("style")
        assert not [facts for _, facts in page.tags if any(name.startswith("on") for name in facts)]
        assert not {"\x1b", "\x07", "\u202e"} & set(browser.answer.text)
        assert browser.answer.headers["content-security-policy"].startswith("default-src 'none'; ")
        shown += "alert(1)" in page.text
    assert 5 <= shown


def test_ten_thousand_tasks_are_small_pages(here: ConsolePlatform, browser: Browser) -> None:
    """Pages of tasks do not grow with the job, nor with the messages of errors."""
    tasks = ({"code": "raise ValueError('x' * 10_000)" if number <= 100 else "1"} for number in range(10_000))
    job = here.client.jobs.submit(tasks, name="large", sandbox=BARE)
    job.cancel()
    assert "of 10000" in browser.open("/jobs/large").text
    assert len(browser.answer.content) < SMALL
    assert "10000" in browser.open("/jobs/large?after=9900").text
    assert len(browser.answer.content) < SMALL
    job.remove()
