"""A headless Chromium for tests: Debian's package, driven by Playwright. Tests are skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

ARGUMENTS = (
    "--no-sandbox",  # tests run as root in containers, too; the pages are those of this suite
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

SERIOUS = ("serious", "critical")

_PROGRAM = shutil.which("chromium")

needs_chromium = pytest.mark.skipif(
    _PROGRAM is None or find_spec("axe_playwright_python") is None,
    reason="there is no chromium (`apt-get install chromium`), or no Playwright and axe-core",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_PROGRAM, args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page of one signed-in user, and what happened that no console page does."""

    page: Page
    url: str
    title: str = ""
    strange: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        answer = self.page.goto(self.url + path)
        assert answer is not None
        while answer.status == 202:  # the page is being made
            answer = self.page.goto(self.url + path)
            assert answer is not None
        assert 200 == answer.status, path
        self.title = self.page.title()

    def serious_findings(self, rule: str = "") -> list[str]:
        """What axe-core finds on this page that keeps someone from using it. rule: only this one."""
        self.page.evaluate(_axe())
        found: dict[str, Any] = self.page.evaluate(
            f"axe.run({{runOnly: ['{rule}']}})" if rule else "axe.run()"
        )
        return [
            f"{one['id']}: {node['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"]
        ]


@contextmanager
def tab(
    browser: Browser, url: str, token: str, scheme: Literal["light", "dark"] = "light", width: int = 1280
) -> Iterator[Tab]:
    """Signed in with the token."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    made = Tab(page, url)

    def came(request: Request) -> None:
        if not request.url.startswith(f"{url}/"):
            made.strange.append(f"request: {request.url}")

    page.on("requestfinished", came)
    page.on("dialog", lambda dialog: (made.strange.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("popup", lambda popup: made.strange.append(f"window: {popup.url}"))
    page.on("pageerror", lambda error: made.strange.append(f"script: {error}"))
    page.on("download", lambda download: made.strange.append(f"download: {download.url}"))
    page.goto(f"{url}/sign-in")
    page.fill("#token", token)
    page.click("button")
    try:
        yield made
    finally:
        context.close()


def _axe() -> str:
    found = find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")
