"""Sessions of the console, and one request of a session: a visit.

Users sign in with a token and are identified by a browser cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cenote.doors.callers import Caller, Callers
from cenote.doors.console.live import LiveCells
from cenote.doors.open_runtimes import Door, ListedRuntime, OpenRuntime
from cenote.harness.questions.execution_state import ExecutionState
from cenote.harness.record.step import Step
from cenote_security.errors import RejectedError
from cenote_security.printable import printable, shown_size
from cenote_worker.execution.trace import ANYTHING

DOOR: Final = "console"
"""The author of steps that the console runs."""

MOST_TEXT: Final = 64_000
"""Characters of one text on a page."""

MOST_LABEL: Final = 200
"""Characters of one name in a sentence of a page."""

PAGE_TEXTS: Final = 150_000
"""Bytes of all texts and names of a page."""

MOST_ADDRESS: Final = 400
"""Characters of the address of a value, which has its name."""

HERE: Final = Path(__file__).parent

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}

MOST_SESSIONS: Final = 1_000
"""Sessions at once; the one that has been idle for longest ends first."""

LONGEST: Final = 12 * 3600.0
"""Seconds after which a session ends."""


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """token: with which its user has signed in. form_key: each form of its pages sends it back, so that a page of
    another site cannot send one. ends: on the monotonic clock.
    """

    token: str
    form_key: str
    ends: float


class ConsoleSessions:
    """The sessions of one process. Their cookies are invalid after it has ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_cookie: OrderedDict[bytes, ConsoleSession] = OrderedDict()

    def begin(self, token: str) -> str:
        """Returns the cookie. The token is valid."""
        cookie = secrets.token_urlsafe(32)
        self._by_cookie[_key(cookie)] = ConsoleSession(
            token, secrets.token_urlsafe(32), self._clock() + LONGEST
        )
        while len(self._by_cookie) > MOST_SESSIONS:
            self._by_cookie.popitem(last=False)
        return cookie

    def get(self, cookie: str) -> ConsoleSession | None:
        """None for one that has ended, or never existed."""
        session = self._by_cookie.get(_key(cookie))
        if session is None:
            return None
        if session.ends <= self._clock():
            self.end(cookie)
            return None
        self._by_cookie.move_to_end(_key(cookie))
        return session

    def end(self, cookie: str) -> None:
        self._by_cookie.pop(_key(cookie), None)


def _key(cookie: str) -> bytes:
    """Not the cookie itself: the time of a search in memory depends on what is searched for."""
    return hashlib.sha256(cookie.encode(errors="replace")).digest()


Section = tuple[str, str]
"""A path, and a title for the navigation."""


class Templates:
    """The templates of all pages."""

    def __init__(self, sections: Sequence[Section] = ()) -> None:
        """sections: of the navigation."""
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "text": _text,
            "label": _label,
            "bytes": shown_size,
            "moment": _moment,
            "seconds": _seconds,
            "segment": lambda name: quote(name, safe=""),
            "money": _money,
        }
        self._environment.globals |= {"sections": sections}

    def page(
        self,
        template: str,
        session: ConsoleSession | None,
        status: int = 200,
        page_path: str = "",
        /,
        *,
        script: bool = False,
        **shown: Any,
    ) -> Response:
        """The template's page, with the forms' key of the session.

        page_path: of the page, which marks its section. script: it may load one, with its `nonce`.
        """
        _ROOM.set(_Room())
        headers = HEADERS
        if script:
            shown["nonce"] = secrets.token_urlsafe(16)
            policy = f"{HEADERS['content-security-policy']}; script-src 'nonce-{shown['nonce']}'; connect-src 'self'"
            headers = HEADERS | {"content-security-policy": policy}
        key = "" if session is None else session.form_key
        if "title" in shown:
            shown["title"] = _label(shown["title"])
        text = self._environment.get_template(f"{template}.html").render(
            form_key=key, page_path=page_path, **shown
        )
        return Response(text, status, headers=headers, media_type="text/html")


class SeenRuntime(Protocol):
    """A runtime whose record pages show."""

    async def state(self) -> ExecutionState:
        """Its record up to now; reading that may wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPage:
    """Some steps of a record in the order in which they ended, without the rest of it. begin: their first place, from
    0. count: of all steps. head: the step whose state was live at the end.
    """

    steps: tuple[Step, ...]
    begin: int
    count: int
    head: int


@runtime_checkable
class PagedRuntime(Protocol):
    """A SeenRuntime whose steps can be read without the rest."""

    async def page(self, before: int | None, size: int) -> StepPage | None:
        """The steps before a place; None: the last ones. None where all of the record is read as fast."""


class ConsoleDoor(Protocol):
    """The runtimes that a session sees."""

    async def listed(self) -> Sequence[ListedRuntime]: ...

    async def get(self, name: str) -> SeenRuntime:
        """An OpenRuntime, if cells can be run there. Raises NotOpenError."""


class SeenRuntimes(Protocol):
    """All that one caller sees. changes: whether the caller may run cells there, and change states."""

    @property
    def changes(self) -> bool: ...

    def through(self, door: str) -> ConsoleDoor: ...


class ConsoleCallers(Protocol):
    """All that may sign in."""

    async def runtimes(self, token: str) -> SeenRuntimes:
        """Raises RejectedError for an invalid token, UnavailableError."""


class ReadOnlyError(RejectedError):
    """A stored record is shown, and its runtime is not there."""

    def __init__(self) -> None:
        super().__init__("this is a stored record, which is only read; open the runtime itself to change it")


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a session. changes: see SeenRuntimes."""

    request: Request
    session: ConsoleSession
    door: ConsoleDoor
    changes: bool
    templates: Templates
    cells: LiveCells

    @property
    def name(self) -> str:
        return str(self.request.path_params["runtime"])

    async def runtime(self) -> OpenRuntime:
        """Raises NotOpenError, ReadOnlyError."""
        seen = await self.door.get(self.name)
        if not isinstance(seen, OpenRuntime):
            raise ReadOnlyError
        return seen

    async def state(self) -> ExecutionState:
        """The record of the runtime. Raises NotOpenError."""
        return await (await self.door.get(self.name)).state()

    async def step(self) -> tuple[ExecutionState, Step]:
        """The step, with the record that contains it. Raises NotOpenError, UnknownEntryError."""
        state = await self.state()
        return state, state.step(self.request.path_params["step"])

    async def form(self) -> Mapping[str, str]:
        """The form, with Python's line ends. Raises RejectedError for one of another site's page."""
        given = (await self.request.form()).items()
        form = {name: value.replace("\r\n", "\n") for name, value in given if isinstance(value, str)}
        if not hmac.compare_digest(form.pop("form_key", "").encode(), self.session.form_key.encode()):
            raise RejectedError("this form is of another session; load its page again")
        return form

    def page(self, template: str, status: int = 200, /, **shown: Any) -> Response:
        """See Templates. They get `live`, too: whether there is a runtime, not its record alone; and `changes`."""
        live, path = isinstance(self.door, Door), self.request.url.path
        return self.templates.page(
            template, self.session, status, path, live=live, changes=self.changes, **shown
        )


Page = Callable[[Visit], Coroutine[Any, Any, Response]]

PageRoute = tuple[str, str, Page]
"""Method, path and page."""


CallerPage = Callable[[Visit, Caller], Awaitable[Response]]

CallerRoute = tuple[str, str, CallerPage]
"""Method, path and page, of one that depends on what the caller's token is good for."""


def for_callers(callers: Callers, routes: Iterable[CallerRoute]) -> Iterator[PageRoute]:
    """The routes, each page with the caller of its visit."""

    def with_caller(page: CallerPage) -> Page:
        async def serve(visit: Visit) -> Response:
            return await page(visit, await callers.caller(visit.session.token))

        return serve

    for method, path, page in routes:
        yield method, path, with_caller(page)


def redirect(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, headers=HEADERS)


def page_number(text: str) -> int | None:
    """A number in an address; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def address(name: str, step: int | None = None) -> str:
    """The path of the page of a runtime, or of one of its steps."""
    page = f"/runtimes/{quote(name, safe='')}"
    return page if step is None else f"{page}/steps/{step}"


def value_address(name: str, number: int, symbol: str) -> str:
    """The page of what a symbol held after a step; empty for one whose name is too long for that, or is no text."""
    if len(symbol) > MOST_ADDRESS or symbol == ANYTHING or not _is_text(symbol):
        return ""
    found = f"{address(name, number)}/value?{urlencode({'name': symbol})}"
    return found if len(found) <= MOST_ADDRESS else ""


def _is_text(symbol: str) -> bool:
    """Half of a surrogate pair cannot be part of an address."""
    return not any("\ud800" <= char <= "\udfff" for char in symbol)


class _Room:
    """The bytes of texts that a page may still have: what a jail wrote, escaped, makes most of a page."""

    def __init__(self) -> None:
        self.left = PAGE_TEXTS

    def cut(self, text: str) -> str:
        """The beginning of a printable text for which there is room."""
        cost = _cost(text)
        while cost > self.left and text:
            text = text[: min(len(text) - 1, len(text) * max(self.left, 0) // cost)]
            cost = _cost(text)
        self.left -= cost
        return text


_ROOM: Final[ContextVar[_Room]] = ContextVar("room")
"""Of the page that this thread or task makes."""


def _cost(text: str) -> int:
    return len(html.escape(text).encode())


def _text(text: str) -> str:
    begun = printable(text[:MOST_TEXT], lines=True)
    shown = _ROOM.get().cut(begun)
    if len(text) <= MOST_TEXT and shown == begun:
        return shown
    return f"{shown}\n... this is the beginning of {len(text):,} characters"


def _label(text: str) -> str:
    """In a sentence or a table: on one line, cut."""
    begun = printable(text[:MOST_LABEL])
    shown = _ROOM.get().cut(begun[:MOST_LABEL])
    return shown if len(text) <= MOST_LABEL and shown == begun else f"{shown}…"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else ""


def _money(dollars: float) -> str:
    return f"${dollars:.4f}" if dollars < 1 else f"${dollars:,.2f}"


def _seconds(duration: float) -> str:
    return f"{duration * 1000:.0f} ms" if duration < 1 else f"{duration:.1f} s"
