"""Pages of a platform in the console: jobs, teams, references, the network, the audit log, the fleet, the machine."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pytest
from tests.support.doors.browser import Browser, Page
from tests.support.doors.chromium import Tab, chromium, needs_chromium, tab
from tests.support.doors.console_platform import BARE, HOSTILE, ConsolePlatform, console_platform
from tests.support.doors.http_served import served
from tests.waiting import until

from cenote.doors.callers import OneCaller
from cenote.doors.open_runtimes import LocalSource, OpenRuntimes
from cenote_security.auth.tokens import Scope

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium

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


def test_cancel_and_retry(here: ConsolePlatform, browser: Browser) -> None:
    """A job that runs, then one task of it. A form without the session's key does nothing."""
    tasks = [{"id": "a/b", "code": "1 / 0"}, {"id": "c", "code": "while True: pass"}]
    job = here.client.jobs.submit(tasks, name="loops", sandbox=BARE)
    until(lambda: job.status().failed)
    browser.open("/jobs/loops")
    browser.send("/jobs/loops/cancel", status=403, form_key="guess")
    assert "refresh" in str(browser.open("/jobs/loops?follow=1").all("meta"))
    browser.send("/jobs/loops/cancel")
    assert "cancelled" == job.wait(60).state
    assert "refresh" not in str(browser.open("/jobs/loops?follow=1").all("meta"))
    browser.open("/jobs/loops/tasks/a%2Fb")
    browser.send("/jobs/loops/retry")
    assert 1 == job.wait(60).revision
    assert [2, 1] == [task.attempts for task in job.tasks()]


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


def test_a_viewer_is_shown_no_form_that_is_refused(here: ConsolePlatform) -> None:
    """Nor a link to one. The others are there for a token that may change the runtime."""
    with (
        here.client.runtime("looked-at", sandbox=BARE) as runtime,
        here.browser(here.limited(Scope.RUNTIMES_READ)) as viewer,
        here.browser() as owner,
    ):
        runtime.execute("a = 1")
        runtime.snapshot("one")
        runtime.execute("a = 2")
        with runtime.fork(name="looked-at-too"):
            for page, forms in (("", 2), ("/steps/1", 2), ("/branches", 3)):
                path = f"/runtimes/looked-at{page}"
                assert forms == _changing(owner.open(path))
                assert 0 == _changing(viewer.open(path))
            assert "no scope runtimes:write" in viewer.open("/runtimes/looked-at").text
            assert "Merge" not in viewer.open("/runtimes/looked-at/branches").text


def test_a_viewer_sees_output_of_other_clients_cells(here: ConsolePlatform) -> None:
    """As it comes, with its author; the page names the cell; it says what came too fast for it."""
    code = "print('x' * 63 + '\\n' + 'begun')\nimport time\nwhile True: time.sleep(0.01)"
    flood = "for _ in range(4000): print('x' * 63)\nprint('begun')\nwhile True: time.sleep(0.01)"
    with (
        here.client.runtime("watched", sandbox=BARE) as runtime,
        here.browser(here.limited(Scope.RUNTIMES_READ)) as viewer,
    ):
        ana = runtime.attach("ana")
        for number, (cell, missed) in enumerate(((code, False), (flood, True)), start=1):
            thread = threading.Thread(target=ana.execute, args=(cell,))
            thread.start()
            until(lambda: "".join(text for _, text in runtime.live_output().pieces).endswith("begun\n"))
            assert f"Step {number} is running for ana" in viewer.open("/runtimes/watched").text
            found = _first_events(viewer, "/runtimes/watched/live")
            assert ("begun\n" in found["output"], missed) == (True, "missed" in found)
            assert {"step": number, "author": "ana"}.items() <= json.loads(found["status"]).items()
            ana.interrupt()
            thread.join()


def _changing(page: Page) -> int:
    """Number of forms that change something, and do not end the session."""
    posting = [each for each in page.all("form") if each["method"] == "post"]
    return len([each for each in posting if each["action"] != "/sign-out"])


def _first_events(browser: Browser, path: str) -> dict[str, str]:
    """The data of each kind up to the first output, all of the same look."""
    found = dict[str, str]()
    kind = ""
    with browser.http.stream("GET", path) as answer:
        for line in answer.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                kind = value
            elif field == "data":
                found[kind] = found.get(kind, "") + (json.loads(value)["text"] if kind == "output" else value)
            elif "output" in found and found["output"].endswith("begun\n"):
                break
    return found


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
            assert "first result after" in browser.send("/doctor").text


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


# -- in a real browser --

OF_RUNTIMES = (
    "/runtimes/etl",
    "/runtimes/etl/steps/2",
    "/runtimes/etl/dependencies",
    "/runtimes/etl/branches",
)

SHOWN = """
class Shown:
    def __init__(self, bundle): self.bundle = bundle
    def _repr_mimebundle_(self, **_): return self.bundle
from IPython.display import display
"""

SCRIPT = "alert(1); document.title = 'owned'; top.document.title = 'owned'; fetch('BEACON/'); open('/')"

ATTACKS = {
    "script": f'<script>{SCRIPT}</script><b onclick="{SCRIPT}">bold</b>',
    "handler": f'<img src="BEACON/a.png" onerror="{SCRIPT}"><body onload="{SCRIPT}">',
    "style": "<style>@import 'BEACON/a.css'; body { background: url(BEACON/b.png) }</style>",
    "frames": '<iframe src="BEACON/"></iframe><object data="BEACON/"></object>',
    "refresh": '<meta http-equiv="refresh" content="0; url=BEACON/"><base href="BEACON/">',
    "form": '<form action="/sign-out" method="post"><input name="form_key"><button autofocus>x</button></form>',
    "link": '<link rel="stylesheet" href="BEACON/"><link rel="prefetch" href="BEACON/p">',
    "title": "</title><title>owned</title><h1>Sign in</h1>",
    "huge": "<p>" + "x" * 300_000,
}

SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' onload='{0}'><script>{0}</script><title>owned</title>"
    "<image href='BEACON/a.png'/><foreignObject><body xmlns='http://www.w3.org/1999/xhtml'>"
    "<img src='x' onerror='{0}'/></body></foreignObject></svg>"
).format("alert(1)")


@pytest.fixture(scope="module")
def chrome(here: ConsolePlatform) -> Iterator[Chromium]:
    with chromium() as started:
        yield started


@pytest.fixture
def user(chrome: Chromium, here: ConsolePlatform) -> Iterator[Tab]:
    with tab(chrome, here.url, here.token) as signed_in:
        yield signed_in


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.timeout(400)  # axe-core takes seconds of CPU a page
@needs_chromium
def test_nothing_keeps_someone_from_using_a_page(
    chrome: Chromium, here: ConsolePlatform, scheme: Literal["light", "dark"]
) -> None:
    """Contrast, labels, landmarks, headings, in both colour schemes; and nothing strange happens."""
    with tab(chrome, here.url, here.token, scheme) as user:
        found = {}
        for path in (*PAGES, *OF_RUNTIMES):
            user.open(path)
            found[path] = user.serious_findings("" if scheme == "light" else "color-contrast")
        assert {} == {path: findings for path, findings in found.items() if findings}
        assert [] == user.strange


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
def test_a_merge_of_some_names(chrome: Chromium, here: ConsolePlatform, width: int) -> None:
    """Chosen by label, on narrow screens too."""
    name = f"merged-{width}"
    with here.client.runtime(name, sandbox=BARE) as runtime:
        runtime.execute("both = 1")
        with runtime.fork(name=f"{name}-branch") as branch:
            branch.execute("both = made = 'theirs'")
        runtime.execute("both = 2")
        with tab(chrome, here.url, here.token, width=width) as user:
            user.open(f"/runtimes/{name}/merge?branch={name}-branch")
            assert [] == user.serious_findings()
            assert width >= user.page.evaluate("document.documentElement.scrollWidth")
            user.page.get_by_label("Take made from").check()
            user.page.click("text=Take the chosen ones")
            user.page.wait_for_selector("h2:has-text('Merged')")
            assert [] == user.strange
        assert "(2, 'theirs')" == runtime.execute("both, made").value


@needs_chromium
def test_a_narrow_screen(chrome: Chromium, here: ConsolePlatform) -> None:
    """Tables scroll, the page does not."""
    with tab(chrome, here.url, here.token, width=360) as user:
        wide = {}
        for path in (*PAGES, *OF_RUNTIMES):
            user.open(path)
            wide[path] = user.page.evaluate("document.documentElement.scrollWidth") - 360
        assert {} == {path: more for path, more in wide.items() if more > 0}


@needs_chromium
def test_the_keyboard(user: Tab) -> None:
    """The first stop skips the navigation; focus is visible; a job is reached and opened without a mouse."""
    user.open("/jobs")
    user.page.keyboard.press("Tab")
    assert "Skip to content" == user.page.evaluate("document.activeElement.textContent")
    user.page.keyboard.press("Enter")
    assert "main" == user.page.evaluate("document.activeElement.id")
    user.page.keyboard.press("Tab")
    user.page.keyboard.press("Tab")
    name = user.page.evaluate("document.activeElement.textContent")
    assert "none" != user.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    user.page.keyboard.press("Enter")
    user.page.wait_for_url(f"**/jobs/{name}")


@needs_chromium
def test_no_script_reads_the_session(user: Tab) -> None:
    user.open("/")
    assert "" == user.page.evaluate("document.cookie")


@needs_chromium
@pytest.mark.parametrize("written", ["", "half = "])
def test_a_page_follows_another_clients_cell(here: ConsolePlatform, user: Tab, written: str) -> None:
    """It was opened before the cell began. A page on which someone writes is not loaded again."""
    page, name = user.page, f"followed-{len(written)}"
    with here.client.runtime(name, sandbox=BARE) as runtime:
        ana = runtime.attach("ana")
        user.open(f"/runtimes/{name}")
        page.wait_for_selector("text=No cell is running")
        page.fill("#code", written)
        thread = threading.Thread(
            target=ana.execute, args=(f"print({HOSTILE!r})\nimport time\nwhile True: time.sleep(0.01)",)
        )
        thread.start()
        page.wait_for_selector("#running:has-text('Step 1 is running for ana')")
        page.wait_for_selector("#live:has-text('alert(1)')")
        ana.interrupt()
        thread.join()
        if written:
            page.wait_for_selector("#running:has-text('Load this page again')")
            assert written == page.input_value("#code")
        else:
            page.wait_for_selector("td.failed")
    assert [] == user.strange


@pytest.fixture
def beacon() -> Iterator[tuple[str, list[str]]]:
    """A server of an attacker: its URL, and the connections to it."""
    heard: list[str] = []
    stopping = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            with listening.accept()[0]:
                if stopping.is_set():
                    return
                heard.append("a connection")

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
    stopping.set()
    socket.create_connection(listening.getsockname()).close()
    thread.join()
    listening.close()


@needs_chromium
def test_hostile_outputs_get_nowhere(here: ConsolePlatform, user: Tab, beacon: tuple[str, list[str]]) -> None:
    """Script, styles, frames, titles, forms, SVG, escape sequences, sheer size: no dialog, no request, no title.

    On the page of their step, and each output opened by itself.
    """
    place, heard = beacon
    shown = [("text/html", text) for text in ATTACKS.values()] + [("image/svg+xml", SVG)]
    bundles = [{kind: text.replace("BEACON", place)} for kind, text in shown]
    with here.client.runtime("hostile", sandbox=BARE) as runtime:
        assert runtime.execute(SHOWN + "\n".join(f"display(Shown({one!r}))" for one in bundles)).error is None
        runtime.execute(f"print('\\x1b[31m' + {HOSTILE!r} * 2_000)\nraise SystemError({HOSTILE!r})")
    for path in ("/runtimes/hostile", "/runtimes/hostile/steps/2", "/runtimes/hostile/steps/1"):
        user.open(path)
        user.page.wait_for_load_state("networkidle")
        assert "Cenote" in user.page.title()
        assert "owned" not in user.page.title()
    outputs = [f"{here.url}/runtimes/hostile/steps/1/outputs/{number}" for number in range(len(bundles))]
    assert {*outputs} & {frame.url for frame in user.page.frames}
    assert "attachment" == user.page.request.get(outputs[-1]).headers["content-disposition"]
    for output in outputs[:-1]:
        user.page.goto(output)
        user.page.wait_for_load_state("networkidle")
        assert output == user.page.url
    assert [] == user.strange
    assert [] == heard
    user.open("/")  # still signed in


@needs_chromium
def test_what_a_model_says_gets_nowhere(user: Tab) -> None:
    for path in (
        "/teams/pipeline",
        "/teams/pipeline/events/5",
        "/jobs/sort",
        "/jobs/sort/tasks/t5",
        "/audit",
    ):
        user.open(path)
        assert "owned" not in user.page.title()
        assert "alert(1)" in user.page.inner_text("main")
    assert [] == user.strange
