"""`cenote view`: stored records in the console, read and never changed, and the address that opens them once."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.support.doors.browser import Browser
from tests.support.history.records import traced
from tests.waiting import PATIENCE

from cenote import PythonRuntime
from cenote.doors.console.recorded import READ_WHOLE, OneTimeCaller, Records
from cenote_security.errors import HistoryUnavailableError, NotAuthenticatedError, UsageError
from cenote_worker.history.events import Event, HeadMoved
from cenote_worker.history.messages import to_event
from cenote_worker.history.step import StepRecord
from cenote_worker.history.store import HistoryStore
from cenote_worker.history.store_writer import open_history


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A history of three steps, of which the last was undone."""
    path = tmp_path / "steps.sqlite"
    with closing(open_history(path, "shop")) as history:
        history.ended(StepRecord(number=1, code="a = 1", trace=traced(writes="a")))
        history.ended(StepRecord(number=2, code="b = a", trace=traced(reads="a", writes="b"), stdout="said"))
        history.ended(StepRecord(number=3, code="c = 1 / 0", trace=traced(writes="c")))
        history.moved(2, "rollback")
    return path


class Viewed:
    """A `cenote view` that runs."""

    def __init__(self, *places: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cenote.cli.main", "view", *map(str, places)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:\d+)(/sign-in\?once=[\w-]+)", self.said)
        assert found is not None, self.said
        self.base, self.once = found.groups()
        self.browser = Browser(self.base)

    def close(self) -> int:
        self.browser.http.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        with self.process.stdout:
            return self.process.wait(PATIENCE)


@pytest.fixture
def viewed(path: Path) -> Iterator[Viewed]:
    viewed = Viewed(path)
    yield viewed
    viewed.close()


async def test_the_first_page_of_a_long_history_reads_its_steps_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the others; for the variables all is read."""
    place, many = tmp_path / "long.sqlite", 10_000
    with HistoryStore(place, "") as store:
        steps = [StepRecord(number=n, parent=n - 1, code=f"x = {n}") for n in range(1, many + 1)]
        store.write([*enumerate(steps), (many, HeadMoved(head=many - 5, reason="rollback"))])
    read = list[bytes]()

    def counted(data: bytes) -> Event:
        read.append(data)
        return to_event(data)

    monkeypatch.setattr("cenote_worker.history.store.to_event", counted)
    recorded = await Records([place]).get("long")
    page = await recorded.page(None, 100)
    assert page is not None
    assert (many, many - 5, many - 100) == (page.count, page.head, page.begin)
    assert [*range(many - 99, many + 1)] == [step.number for step in page.steps]
    assert len(read) == 101
    earlier = await recorded.page(50, 100)
    assert earlier is not None
    assert ([*range(1, 51)], 0) == ([step.number for step in earlier.steps], earlier.begin)
    assert len(read) == 101 + 51
    assert many - 5 == (await recorded.state()).head
    assert None is await recorded.page(None, 100)


@pytest.mark.slow
def test_a_long_history_shows_its_variables_on_demand(tmp_path: Path) -> None:
    place = tmp_path / "long.sqlite"
    with closing(open_history(place, "shop")) as history:
        for number in range(1, READ_WHOLE + 2):
            history.ended(StepRecord(number=number, code=f"a = {number}", trace=traced(writes="a")))
    viewed = Viewed(place)
    try:
        viewed.browser.open(viewed.once)
        page = viewed.browser.open("/runtimes/shop")
        assert f"A stored record of {READ_WHOLE + 1} steps" in page.text
        assert f"a = {READ_WHOLE + 1}" in page.text
        (link,) = [str(facts["href"]) for facts in page.all("a") if "variables=" in str(facts)]
        assert "Show them" not in viewed.browser.open(link).text
        assert "Show them" not in viewed.browser.open("/runtimes/shop").text
    finally:
        viewed.close()


@pytest.mark.slow
def test_pages_of_a_history(viewed: Viewed) -> None:
    """The same as of a runtime, without what takes one."""
    browser = viewed.browser
    assert "/runtimes/shop" in [facts["href"] for facts in browser.open(viewed.once).all("a")]
    page = browser.open("/runtimes/shop")
    assert "A stored record of 3 steps; the state was that after step 2" in page.text
    assert {"/sign-out"} == set(page.forms)
    assert "said" in browser.open("/runtimes/shop/steps/2").text
    assert {"/sign-out"} == set(browser.page.forms)
    assert "/runtimes/shop/steps/1/value?name=a" in str(browser.open("/runtimes/shop/dependencies").all("a"))
    assert "step left" in str(browser.open("/runtimes/shop/branches").all("svg"))
    assert "b added" in browser.open("/runtimes/shop/diff?a=1&b=2").text
    for path in ("/runtimes/shop/files", "/runtimes/shop/merge?branch=shop"):
        assert "stored record" in browser.open(path, status=403).text
    for path in ("run", "fork", "steps/1/plan", "steps/1/rollback", "snapshots", "interrupt"):
        answer = browser.http.post(
            f"/runtimes/shop/{path}", data={"form_key": browser.page.forms["/sign-out"]["form_key"]}
        )
        assert 403 == answer.status_code, path


def test_the_address_opens_the_pages_once(viewed: Viewed) -> None:
    """In one browser, whose session goes on; its token is not in the cookie."""
    stranger = httpx.get(f"{viewed.base}/runtimes/shop", trust_env=False)
    assert 303 == stranger.status_code
    wrong = httpx.get(f"{viewed.base}{viewed.once}x", trust_env=False)
    assert 401 == wrong.status_code
    viewed.browser.open(viewed.once)
    (cookie,) = viewed.browser.http.cookies.values()
    assert cookie not in viewed.once
    viewed.browser.open("/runtimes/shop")
    second = httpx.get(f"{viewed.base}{viewed.once}", trust_env=False)
    assert 401 == second.status_code
    assert "set-cookie" not in second.headers
    rebound = httpx.get(f"{viewed.base}{viewed.once}", headers={"Host": "evil.test"}, trust_env=False)
    assert 400 == rebound.status_code


def test_what_is_written_meanwhile_is_shown(viewed: Viewed, path: Path) -> None:
    """The writer is not disturbed."""
    viewed.browser.open(viewed.once)
    viewed.browser.open("/runtimes/shop")
    with closing(open_history(path, "shop")) as history:
        history.ended(StepRecord(number=4, code="added = 'later'", trace=traced(writes=["added"])))
        history.flush()
        assert "added = &#39;later&#39;" in viewed.browser.http.get("/runtimes/shop").text
        history.ended(StepRecord(number=5, code="more = 1", trace=traced(writes=["more"])))
        history.flush()
    assert "4" in viewed.browser.open("/runtimes/shop/steps/4").text
    assert "more = 1" in viewed.browser.open("/runtimes/shop").text


def test_nothing_is_written(path: Path) -> None:
    def digest() -> tuple[str, list[str]]:
        return hashlib.sha256(path.read_bytes()).hexdigest(), sorted(os.listdir(path.parent))

    before = digest()
    viewed = Viewed(path)
    viewed.browser.open(viewed.once)
    viewed.browser.open("/runtimes/shop")
    viewed.close()
    assert before == digest()


@pytest.mark.slow
def test_a_folder_of_histories_and_checkpoints(tmp_path: Path) -> None:
    """Those of all runtimes; other files in it are left alone."""
    for file, name in (("one.sqlite", ""), ("two.db", "same"), ("three.db", "same")):
        with closing(open_history(tmp_path / file, name)) as history:
            history.ended(StepRecord(number=1, code="x = 1", trace=traced(writes="x")))
    (tmp_path / "other.db").write_bytes(b"no database")
    (tmp_path / "link.db").symlink_to("/etc/passwd")
    with PythonRuntime(store=tmp_path, name="a/b", address="embedded") as runtime:
        runtime.execute(
            "kept = [1]\nimport threading\nlock = threading.Lock()\nopen('f.txt', 'w').write('x')"
        )
        runtime.checkpoint("<b>label</b>")
    records = Records([tmp_path])
    assert ("one", "same", "same (2)") == records.histories
    viewed = Viewed(tmp_path)
    try:
        page = viewed.browser.open(viewed.once)
        assert "/stores/a%252Fb" in [facts["href"] for facts in page.all("a")]
        page = viewed.browser.open("/stores/a%252Fb")
        assert "<b>label</b>" in page.text
        assert "kept" in page.text
        assert "f.txt, 1 B" in page.text
        viewed.browser.open("/stores/a%252Fb?number=1")
        viewed.browser.open("/stores/a%252Fb?number=99", status=404)
        viewed.browser.open("/stores/none", status=404)
        assert not viewed.browser.page.all("b")
    finally:
        viewed.close()


def test_what_is_no_history(tmp_path: Path) -> None:
    empty, other, tables = tmp_path / "empty", tmp_path / "text.sqlite", tmp_path / "tables.sqlite"
    empty.mkdir()
    other.write_text("no database at all" * 100)
    with closing(sqlite3.connect(tables)) as database:
        database.execute("CREATE TABLE other (x)")
    with pytest.raises(UsageError, match="no history"):
        Records([empty])
    for place in (other, tables, tmp_path / "none"):
        with pytest.raises(HistoryUnavailableError):
            Records([place])
    done = subprocess.run(
        [sys.executable, "-m", "cenote.cli.main", "view", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 2 == done.returncode
    assert "there is no" in done.stderr


def test_a_token_is_redeemed_once(path: Path) -> None:
    caller = OneTimeCaller(Records([path]))
    for wrong in ("", "é", "\ud800", caller.token[:-1]):
        with pytest.raises(NotAuthenticatedError):
            caller.redeem(wrong)
    caller.redeem(caller.token)
    with pytest.raises(NotAuthenticatedError):
        caller.redeem(caller.token)
