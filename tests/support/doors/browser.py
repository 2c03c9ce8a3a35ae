"""What a person does with pages: opens them, reads them, submits their forms."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx


class Browser:
    """One person's browser: it has their cookies, and submits a form as its page has it."""

    def __init__(self, base: str) -> None:
        self.http = httpx.Client(base_url=base, timeout=60, trust_env=False, follow_redirects=True)
        self.page = Page("")
        self.answer = httpx.Response(200)

    def open(self, path: str, status: int = 200) -> Page:
        return self._read(self.http.get(path), status)

    def send(self, path: str, status: int = 200, **fields: str) -> Page:
        """Submits the page's form with that action. Fails if there is none."""
        given = self.page.forms[path] | fields
        return self._read(self.http.post(path, data=given), status)

    def post(self, path: str, status: int = 200, **fields: str) -> Page:
        """Sends what the page may have no form for, with the session's key."""
        return self._read(self.http.post(path, data=self.page.forms["/sign-out"] | fields), status)

    def _read(self, answer: httpx.Response, status: int) -> Page:
        assert status == answer.status_code, answer.text
        self.answer, self.page = answer, Page(answer.text)
        return self.page


class Page(HTMLParser):
    """What a browser makes of a page: its tags, its text, its forms by their actions."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.forms: dict[str, dict[str, str]] = {}
        self._form: dict[str, str] = {}
        self._field = ""
        self.feed(text)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.text += "" if tag == "mark" else " "
        self.tags.append((tag, facts))
        if tag == "form":
            self._form = self.forms.setdefault(facts.get("action") or "", {})
        elif tag == "input" and facts.get("name"):
            self._form[str(facts["name"])] = facts.get("value") or ""
        elif tag == "textarea":
            self._field = str(facts["name"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._field = ""

    def handle_data(self, data: str) -> None:
        if self._field:
            self._form[self._field] = self._form.get(self._field, "") + data.removeprefix("\n")
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [facts for name, facts in self.tags if name == tag]
