"""The console: who is admitted, what its pages show, and how they show hostile output."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from tests.support.doors.browser import Browser, Page
from tests.support.doors.http_served import served

from cenote import SandboxPolicy
from cenote.doors.callers import OneCaller
from cenote.doors.console.app import Console
from cenote.doors.console.session import LONGEST, MOST_SESSIONS, ConsoleSessions, Visit
from cenote.doors.console.steps import unframed
from cenote.doors.open_runtimes import LocalSource, OpenRuntimes
from cenote_security.errors import UnavailableError

TOKEN = "a token of this test"
HOSTILE = "</pre></textarea></title><script>alert(1)</script><img src=x onerror=alert(1)>\x1b]0;owned\x07\u202e\u2066"


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    runtimes = OpenRuntimes(LocalSource(SandboxPolicy(preload=())))
    with served(OneCaller(TOKEN, runtimes)) as base:
        yield base


@pytest.fixture
def stranger(base: str) -> Iterator[Browser]:
    browser = Browser(base)
    with browser.http:
        yield browser


@pytest.fixture
def browser(stranger: Browser) -> Browser:
    """A browser that has signed in."""
    stranger.open("/sign-in")
    stranger.send("/sign-in", token=TOKEN)
    assert "Runtimes" in stranger.page.text
    return stranger


@pytest.fixture
def named(base: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A runtime that was created through another interface."""
    name = request.node.name.partition("[")[0][:60]
    with httpx.Client(
        base_url=base, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60, trust_env=False
    ) as api:
        api.put(f"/v1/runtimes/{name}", json={}).raise_for_status()
        yield name
        api.delete(f"/v1/runtimes/{name}").raise_for_status()


def run(browser: Browser, name: str, code: str) -> Page:
    """Runs a cell from the page of its runtime. Returns the page of its step."""
    browser.open(f"/runtimes/{name}")
    return browser.send(f"/runtimes/{name}/run", code=code)


# -- who gets in --


@pytest.mark.parametrize(
    "path", ["/", "/runtimes/any", "/runtimes/any/steps/1", "/runtimes/any/steps/1/outputs/0"]
)
def test_a_stranger_gets_to_sign_in(stranger: Browser, path: str) -> None:
    page = stranger.open(path)
    assert "/sign-in" in page.forms
    assert not stranger.http.cookies
    assert path == page.forms["/sign-in"]["to"]


@pytest.mark.parametrize("token", ["", "no-such-token", "é", "x" * 100_000])
def test_a_wrong_token_opens_nothing(stranger: Browser, token: str) -> None:
    stranger.open("/sign-in")
    page = stranger.send("/sign-in", status=401, token=token)
    assert "/sign-in" in page.forms
    assert not stranger.http.cookies


def test_the_cookie_is_for_this_server_alone(browser: Browser) -> None:
    """No script reads it, no other site can send it; it is not the token; it ends with the session."""
    fresh = browser.http.post("/sign-in", data={"token": TOKEN}, follow_redirects=False)
    cookie = fresh.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie
    browser.open("/")
    browser.send("/sign-out")
    assert "/sign-in" in browser.open("/").forms


@pytest.mark.parametrize("to", ["//evil.test/", "https://evil.test/", "/\\evil.test", "javascript:alert(1)"])
def test_signing_in_leads_to_no_other_server(stranger: Browser, to: str) -> None:
    stranger.open("/sign-in")
    answer = stranger.http.post("/sign-in", data={"token": TOKEN, "to": to}, follow_redirects=False)
    assert "/" == answer.headers["location"]


def test_forms_of_other_pages_do_nothing(browser: Browser, named: str) -> None:
    """One without the session's key, one with another session's, and one that a browser reports as another site's."""
    browser.open(f"/runtimes/{named}")
    for key in ("", "guess"):
        page = browser.send(f"/runtimes/{named}/run", status=403, code="forged = 1", form_key=key)
        assert "Not allowed" in page.text
        browser.open(f"/runtimes/{named}")
    answer = browser.http.post(
        f"/runtimes/{named}/run",
        data=browser.page.forms[f"/runtimes/{named}/run"] | {"code": "forged = 1"},
        headers={"Origin": "https://evil.test"},
    )
    assert 403 == answer.status_code
    assert "forged" not in browser.open(f"/runtimes/{named}").text


def test_sessions_end() -> None:
    """After a timeout, and when there are too many."""
    now = 0.0
    sessions = ConsoleSessions(lambda: now)
    first = sessions.begin("one")
    now = LONGEST - 1
    assert sessions.get(first) is not None
    now = LONGEST
    assert sessions.get(first) is None
    cookies = [sessions.begin("two") for _ in range(MOST_SESSIONS + 1)]
    assert [False, True, True] == [sessions.get(cookies[each]) is not None for each in (0, 1, -1)]


# -- what pages show --


def test_a_cell_from_the_page_to_its_record(browser: Browser, named: str) -> None:
    """Browsers send the lines of a form with CRLF."""
    page = run(browser, named, "rows = [1, 2]\r\nprint('made')\r\nlen(rows), '''a\r\nb'''")
    assert "made" in page.text.split()
    assert "(2, 'a\\nb')" in page.text
    overview = browser.open(f"/runtimes/{named}")
    assert "rows" in overview.text
    assert "No cell is running" in overview.text
    assert named in browser.open(f"/?q={named[:8]}").text
    assert named not in browser.open("/?q=no-such-name").text


def test_the_failing_expression_is_marked(browser: Browser, named: str) -> None:
    page = run(browser, named, "x = 1\ny = [x, x / 0]")
    assert 1 == len(page.all("mark"))
    assert "<mark>x / 0</mark>" in browser.answer.text
    assert "ZeroDivisionError" in page.text


def test_what_an_edit_would_run_again(browser: Browser, named: str) -> None:
    """The plan changes nothing; applying it does, and reports the changes."""
    for code in ("a = 1", "b = a + 1", "c = 5"):
        run(browser, named, code)
    browser.open(f"/runtimes/{named}/steps/1")
    assert "Step 2 took a" in browser.page.text
    path = f"/runtimes/{named}/steps/1/plan"
    page = browser.send(path, code="a = 10")
    assert "2 of 3 steps" in page.text
    assert "rerun" in page.text
    assert "[1, 2, 5]" in run(browser, named, "[a, b, c]").text
    browser.open(f"/runtimes/{named}/steps/1")
    browser.send(path, code="a = 10")
    assert "a = 10" == browser.page.forms[path]["code"]
    page = browser.send(path)
    assert "Applied: applied" in page.text
    assert "[10, 11, 5]" in run(browser, named, "[a, b, c]").text


def test_an_edit_of_a_state_that_has_gone_on_is_not_applied(browser: Browser, named: str) -> None:
    """Its plan is shown again."""
    for code in ("a = 1", "b = a"):
        run(browser, named, code)
    browser.open(f"/runtimes/{named}/steps/1")
    path = f"/runtimes/{named}/steps/1/plan"
    browser.send(path, code="a = 10")
    shown = browser.page.forms
    run(browser, named, "c = a")
    browser.page.forms = shown
    page = browser.send(path)
    assert "nothing was applied" in page.text
    assert "3 of 3 steps" in page.text
    page = browser.send(path)
    assert "Applied: applied" in page.text
    (link,) = [str(facts["href"]) for facts in page.all("a") if "/diff?" in str(facts)]
    assert "b changed int" in browser.open(link).text


def test_snapshots_and_going_back(browser: Browser, named: str) -> None:
    run(browser, named, "x = 1")
    browser.open(f"/runtimes/{named}")
    page = browser.send(f"/runtimes/{named}/snapshots", label="before the change")
    assert "before the change" in page.text
    run(browser, named, "x = 2")
    browser.open(f"/runtimes/{named}/steps/1")
    browser.send(f"/runtimes/{named}/steps/1/rollback")
    assert "x = 2" in browser.page.text  # the record retains it
    assert "Value 1" in run(browser, named, "x").text


def test_a_cell_that_runs_is_shown_and_interrupted(
    browser: Browser, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cenote.doors.console.runtimes.PATIENCE", 0.2)
    page = run(browser, named, "import time\nwhile True: time.sleep(0.01)")
    assert "Step 1 is running" in page.text
    assert "2" == next(facts["content"] for facts in page.all("meta") if facts.get("http-equiv") == "refresh")
    browser.send(f"/runtimes/{named}/interrupt")
    while "Step 1 is running" in browser.page.text:
        browser.open(f"/runtimes/{named}")
    assert "KeyboardInterrupt" in browser.open(f"/runtimes/{named}/steps/1").text


def test_files_are_listed_and_stored(browser: Browser, named: str) -> None:
    """A browser displays none of them, whatever their names."""
    run(
        browser,
        named,
        "import os\nos.mkdir('a b')\nopen('a b/page.html', 'w').write('<script>alert(1)</script>')",
    )
    (link,) = [
        facts["href"] for facts in browser.open(f"/runtimes/{named}/files").all("a") if "?path=" in str(facts)
    ]
    links = [str(facts["href"]) for facts in browser.open(str(link)).all("a")]
    (link,) = [each for each in links if "/file?path=" in each]
    (shown,) = [each for each in links if "/preview?path=" in each]
    assert "<script>alert(1)</script>" in browser.open(shown).text
    assert not browser.page.all("script")
    answer = browser.http.get(str(link))
    assert "<script>alert(1)</script>" == answer.text
    assert ("attachment", "application/octet-stream") == (
        answer.headers["content-disposition"],
        answer.headers["content-type"],
    )
    browser.open(f"/runtimes/{named}/file?path=no-such", status=404)
    browser.open(f"/runtimes/{named}/files?path=../../etc", status=400)


PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


def test_previews_of_files(browser: Browser, named: str) -> None:
    """Pictures by what they are, not by their names; text escaped and cut; nothing else."""
    run(
        browser,
        named,
        f"import base64\ndef put(name, data): open(name, 'wb').write(data)\n"
        f"put('picture.txt', base64.b64decode('{PICTURE}'))\n"
        f"put('text.png', {HOSTILE!r}.encode())\n"
        "put('drawing.svg', b'<svg><script>alert(1)</script></svg>')\n"
        "put('long.txt', b'<' * 1_000_000)\nput('bytes', b'a\\0b')",
    )
    preview = f"/runtimes/{named}/preview?path="
    (shown,) = browser.open(f"{preview}picture.txt").all("img")
    answer = browser.http.get(str(shown["src"]))
    assert "image/png" == answer.headers["content-type"]
    assert "sandbox" in answer.headers["content-security-policy"].split("; ")
    for name in ("text.png", "drawing.svg"):
        page = browser.open(f"{preview}{name}")
        assert "alert(1)" in page.text
        assert not page.all("img")
        assert not page.all("script")
        picture = browser.http.get(f"/runtimes/{named}/file?path={name}&as=picture")
        assert "application/octet-stream" == picture.headers["content-type"]
    assert not {"\x1b", "\x07", "\u202e"} & set(browser.answer.text)
    assert "of which the beginning is shown" in browser.open(f"{preview}long.txt").text
    assert len(browser.answer.content) < 300_000
    assert "no text" in browser.open(f"{preview}bytes").text
    browser.open(f"{preview}no-such", status=404)


def test_many_files_are_many_pages(browser: Browser, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cenote.doors.console.runtimes.FILES_OF_A_PAGE", 3)
    run(browser, named, "for each in range(5): open(f'file-{each}', 'w').close()")
    page = browser.open(f"/runtimes/{named}/files")
    assert ["0", "1", "2"] == sorted(set(re.findall(r"path=file-(\d)", browser.answer.text)))
    (link,) = [str(facts["href"]) for facts in page.all("a") if facts.get("rel") == "next"]
    browser.open(link)
    assert ["3", "4"] == sorted(set(re.findall(r"path=file-(\d)", browser.answer.text)))


def test_output_of_a_running_cell_comes_as_it_is_written(
    browser: Browser, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Printable, and to its end; a page that comes back gets what it has not had."""
    monkeypatch.setattr("cenote.doors.console.runtimes.PATIENCE", 0.2)
    code = f"import time\nprint({HOSTILE!r})\nwhile True: time.sleep(0.01)"
    page = run(browser, named, code)
    (live,) = [facts["data-source"] for facts in page.all("pre") if facts.get("id") == "live"]
    with browser.http.stream("GET", str(live)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        seen = dict[str, str]()
        for line in answer.iter_lines():
            field, _, value = line.partition(": ")
            seen[field] = value
            if line == "" and seen.get("event") == "output":
                break
    text = json.loads(seen["data"])["text"]
    assert "alert(1)" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    begin = {"Last-Event-ID": seen["id"]}
    with browser.http.stream("GET", str(live), headers=begin) as answer:
        kinds = list[str]()
        for line in answer.iter_lines():
            if not line.startswith("event: "):
                continue
            kinds.append(line.partition(": ")[2])
            if kinds == ["status"]:
                browser.send(f"/runtimes/{named}/interrupt")
    assert "end" == kinds[-1]
    assert {"status", "end"} >= {kind for kind in kinds if kind != "output"}


def test_a_stream_ends_where_nothing_runs(browser: Browser, named: str) -> None:
    run(browser, named, "x = 1")
    answer = browser.http.get(f"/runtimes/{named}/live")
    assert ["event: end"] == [line for line in answer.text.splitlines() if line.startswith("event")]
    browser.open("/runtimes/no-such/live", status=404)


def test_many_steps_are_many_pages(browser: Browser, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cenote.doors.console.runtimes.STEPS_OF_A_PAGE", 3)
    for number in range(5):
        run(browser, named, f"number = {number}")
    page = browser.open(f"/runtimes/{named}")
    assert ["4", "3", "2"] == re.findall(r"number = (\d)", page.text)
    assert ["1", "0"] == re.findall(r"number = (\d)", browser.open(f"/runtimes/{named}?before=2").text)
    for odd in ("x", "-1", "9" * 30, "\u00b2"):
        browser.open(f"/runtimes/{named}?before={odd}")


async def test_a_page_that_takes_long_loads_itself_again() -> None:
    """It is made once, and shown when it is ready. What is no document of a browser waits for it."""
    ready, made = asyncio.Event(), list[str]()

    async def slow(visit: Visit) -> Response:
        made.append(visit.request.url.path)
        await ready.wait()
        if len(made) > 1:
            raise UnavailableError("not now")
        return visit.page("failed", title="Ready", message="all of it")

    console = Console(
        OneCaller(TOKEN, OpenRuntimes(LocalSource(SandboxPolicy(preload=())))), [("GET", "/slow", slow)]
    )
    transport = httpx.ASGITransport(app=Starlette(routes=console.routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        await http.post("/sign-in", data={"token": TOKEN})
        document = {"Sec-Fetch-Dest": "document"}
        for _ in range(2):
            answer = await http.get("/slow", headers=document)
            assert 202 == answer.status_code
            assert '<meta http-equiv="refresh" content="1">' in answer.text
        ready.set()
        answer = await http.get("/slow", headers=document)
        assert (200, ["/slow"]) == (answer.status_code, made)
        assert "all of it" in answer.text
        for headers in (document, {}):
            answer = await http.get("/slow", headers=headers)
            assert 503 == answer.status_code
            assert "not now" in answer.text
        assert 3 == len(made)
        ready.clear()
        picture = asyncio.ensure_future(http.get("/slow", headers={"Sec-Fetch-Dest": "image"}))
        assert 202 == (await http.get("/slow", headers=document)).status_code
        assert not picture.done()
        await console.close()
        ready.set()
        assert 503 == (await picture).status_code


def test_what_is_not_there(browser: Browser, named: str) -> None:
    for path in ("/runtimes/no-such", f"/runtimes/{named}/steps/99"):
        assert "Not found" in browser.open(path, status=404).text
    browser.open(f"/runtimes/{named}/steps/1/outputs/0", status=404)


# -- what is hostile --


def test_text_of_a_jail_stays_text(browser: Browser, named: str) -> None:
    """Code, output, value, error, names, the label of a snapshot: on each page that shows them."""
    code = f"text = {HOSTILE!r}\nprint(text)\nclass Odd: __repr__ = lambda self: text\nodd = Odd()\n"
    run(browser, named, f"{code}globals()[text] = 1\nraise ValueError(text)")
    browser.open(f"/runtimes/{named}")
    browser.send(f"/runtimes/{named}/snapshots", label=HOSTILE[:60])
    browser.open(f"/runtimes/{named}/steps/1")
    pages = ["/", f"/runtimes/{named}", f"/runtimes/{named}/steps/1", f"/?q={HOSTILE[:20]}"]
    for path in pages:
        page = browser.open(path)
        assert {"/live.js"} >= {facts["src"] for facts in page.all("script")}
        assert not page.all("img")
        assert not [facts for _, facts in page.tags if any(name.startswith("on") for name in facts)]
        assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(browser.answer.text)
    assert "alert(1)" in page.text or path == pages[-1]


def test_pages_run_no_script_of_others(browser: Browser, named: str) -> None:
    """One page has a script, the console's own, by a nonce that no one knows before; others have none."""
    browser.open("/")
    policy = browser.answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert not re.search(r"script-src|connect-src|unsafe|\*|http", policy)
    assert not browser.page.all("script")
    nonces = set()
    for _ in range(2):
        browser.open(f"/runtimes/{named}")
        policy = browser.answer.headers["content-security-policy"]
        ((script),) = browser.page.all("script")
        assert {"src", "nonce", "defer"} == set(script)
        assert "/live.js" == script["src"]
        assert f"script-src 'nonce-{script['nonce']}'; connect-src 'self'" in policy
        assert not re.search(r"unsafe|\*|http", policy)
        nonces.add(script["nonce"])
    assert 2 == len(nonces)
    for path in ("/", f"/runtimes/{named}"):
        browser.open(path)
        assert "frame-ancestors 'none'" in browser.answer.headers["content-security-policy"]
        assert not [facts for _, facts in browser.page.tags if "style" in facts]


SHOWN = """
class Shown:
    def _repr_mimebundle_(self, **_): return BUNDLE
Shown()
"""


@pytest.mark.parametrize(
    ("bundle", "tag", "kind"),
    [
        ({"text/html": "<script>alert(1)</script><b>bold</b>", "text/plain": "x"}, "iframe", "text/html"),
        (
            {"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"},
            "img",
            "image/svg+xml",
        ),
        ({"image/png": "iVBORw0KGgo="}, "img", "image/png"),
    ],
)
def test_what_is_no_text_is_shut_in(
    browser: Browser, named: str, bundle: dict[str, str], tag: str, kind: str
) -> None:
    """In a frame or an image; opened by itself it has no origin, no script and no network either."""
    page = run(browser, named, SHOWN.replace("BUNDLE", repr(bundle)))
    (shown,) = page.all(tag)
    if tag == "iframe":
        assert "" == (shown["sandbox"] or "")
    answer = browser.http.get(str(shown["src"]))
    assert answer.headers["content-type"].startswith(kind)
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"sandbox", "default-src 'none'"} <= set(policy)
    assert "nosniff" == answer.headers["x-content-type-options"]


def test_huge_outputs_give_small_pages(browser: Browser, named: str) -> None:
    run(browser, named, "print('x' * 3_000_000)\n'y' * 1_000_000")
    assert len(browser.answer.content) < 300_000


@pytest.mark.parametrize("tag", ["iframe", "IFrame", "frame", "frameset", "fencedframe", "portal"])
def test_a_document_has_no_frames(tag: str) -> None:
    """A browser looks up the host of one that it refuses."""
    html = f"<b>bold</b><{tag}\nsrc='http://data.evil.test/'></{tag}>"
    assert f"<{tag.lower()}" not in unframed(html).lower()
    assert unframed(html).startswith("<b>bold</b>")
