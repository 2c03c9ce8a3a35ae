"""Pages of the console: the fleet, a runtime with its steps and variables, a step, what an edit would run again.

Users sign in with a token and are identified by a browser cookie.

Output of a jail is hostile. Text is escaped, and without control characters. Anything else has a URL of its own, with
a policy by which a browser gives it no script, no form, no origin and no network; pages show it in frames and images.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from cenote.doors.callers import Callers, is_token
from cenote.doors.http_api import status_of
from cenote.doors.open_runtimes import Door, OpenRuntime
from cenote.harness.patching.patch import Patch
from cenote.harness.record.step import Step
from cenote_security.errors import CenoteError, NotAuthenticatedError, RejectedError
from cenote_security.printable import printable, shown_size
from cenote_worker.execution.results import Span, VariableInfo

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


DOOR: Final = "console"
"""The author of steps that the console runs."""

COOKIE: Final = "cenote_session"

STEPS_OF_A_PAGE: Final = 100

MOST_TEXT: Final = 64_000
"""Characters of one text on a page."""

PATIENCE: Final = 5.0
"""Seconds that a page waits for a namespace."""

_HERE: Final = Path(__file__).parent

_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; frame-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}

_OF_JAILS: Final = _HEADERS | {
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'self'",
}
"""Headers for output of a jail, whatever it claims to be."""

_TITLES: Final = {403: "Not allowed", 404: "Not found"}
"""Titles of error pages. A lost runtime is no error of the server."""

_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
_FRAMES: Final = ("text/html",)
_TEXTS: Final = ("text/markdown", "text/latex", "application/json", "text/plain")
"""The first type that an output has is shown, images before frames before texts."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One output of a step on its page: as an `image`, a `frame` or a `text`. url: if it has one of its own."""

    kind: str
    url: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a session."""

    request: Request
    session: ConsoleSession
    door: Door

    @property
    def name(self) -> str:
        return str(self.request.path_params["runtime"])

    async def runtime(self) -> OpenRuntime:
        return await self.door.get(self.name)

    async def step(self) -> tuple[Any, Step]:
        """The step, with the record that contains it. Raises UsageError, UnknownEntryError."""
        state = await (await self.runtime()).state()
        return state, state.step(self.request.path_params["step"])

    async def form(self) -> Mapping[str, str]:
        """The form, with Python's line ends. Raises RejectedError for one of another site's page."""
        given = (await self.request.form()).items()
        form = {name: value.replace("\r\n", "\n") for name, value in given if isinstance(value, str)}
        if not hmac.compare_digest(form.pop("form_key", "").encode(), self.session.form_key.encode()):
            raise RejectedError("this form is of another session; load its page again")
        return form


Page = Callable[[Visit], Awaitable[Response]]


class Console:
    """All pages, for the callers of one application."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._sessions = ConsoleSessions()
        self._running = set[asyncio.Task[Any]]()
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "text": _text,
            "bytes": shown_size,
            "moment": _moment,
            "seconds": _seconds,
            "segment": lambda name: quote(name, safe=""),
        }

    def routes(self) -> list[BaseRoute]:
        one, step = "/runtimes/{runtime}", "/runtimes/{runtime}/steps/{step:int}"
        return [
            Route("/console.css", self._style),
            Route("/favicon.ico", _no_icon),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            self._route("/", self._fleet),
            self._route("/sign-out", self._sign_out, "POST"),
            self._route(one, self._runtime),
            self._route(f"{one}/files", self._files),
            self._route(f"{one}/file", self._file),
            self._route(f"{one}/run", self._run, "POST"),
            self._route(f"{one}/interrupt", self._interrupt, "POST"),
            self._route(f"{one}/snapshots", self._snapshot, "POST"),
            self._route(step, self._step),
            self._route(f"{step}/outputs/{{output:int}}", self._output),
            self._route(f"{step}/plan", self._plan, "POST"),
            self._route(f"{step}/rollback", self._roll_back, "POST"),
        ]

    async def close(self) -> None:
        """Interrupts the cells that pages have begun."""
        for task in self._running:
            task.cancel()

    def _route(self, path: str, page: Page, method: str = "GET") -> Route:
        async def serve(request: Request) -> Response:
            cookie = request.cookies.get(COOKIE, "")
            session = self._sessions.get(cookie)
            if session is None:
                return _to_sign_in(request)
            try:
                door = (await self._callers.runtimes(session.token)).through(DOOR)
                return await page(Visit(request, session, door))
            except NotAuthenticatedError:
                self._sessions.end(cookie)
                return _to_sign_in(request)
            except CenoteError as error:
                return self._failed(error, session)

        return Route(path, serve, methods=[method])

    def _page(
        self, template: str, session: ConsoleSession | None, status: int = 200, **shown: Any
    ) -> Response:
        key = "" if session is None else session.form_key
        text = self._templates.get_template(f"{template}.html").render(form_key=key, **shown)
        return Response(text, status, headers=_HEADERS, media_type="text/html")

    def _failed(self, error: CenoteError, session: ConsoleSession) -> Response:
        status = status_of(error)
        title = _TITLES.get(status, "Not possible")
        return self._page("failed", session, status, title=title, message=str(error))

    async def _style(self, _: Request) -> Response:
        return FileResponse(_HERE / "console.css", headers={"x-content-type-options": "nosniff"})

    # -- signing in --

    async def _sign_in(self, request: Request) -> Response:
        if request.method == "GET":
            return self._page("sign_in", None, message="", to=_within(request.query_params.get("to", "/")))
        form = await request.form()
        token, to = str(form.get("token", "")).strip(), _within(str(form.get("to", "/")))
        try:
            if not is_token(token):
                raise NotAuthenticatedError("this is no token")
            await self._callers.runtimes(token)
        except RejectedError as error:
            return self._page("sign_in", None, 401, message=str(error), to=to)
        except CenoteError as error:
            return self._page("sign_in", None, 503, message=str(error), to=to)
        answer = _to(to)
        answer.set_cookie(
            COOKIE,
            self._sessions.begin(token),
            max_age=int(LONGEST),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _sign_out(self, visit: Visit) -> Response:
        await visit.form()
        self._sessions.end(visit.request.cookies[COOKIE])
        answer = _to("/sign-in")
        answer.delete_cookie(COOKIE)
        return answer

    # -- reading --

    async def _fleet(self, visit: Visit) -> Response:
        sought = visit.request.query_params.get("q", "")
        listed = [one for one in await visit.door.listed() if sought.lower() in one.name.lower()]
        return self._page("fleet", visit.session, title="Runtimes", runtimes=listed, sought=sought)

    async def _runtime(self, visit: Visit) -> Response:
        runtime = await visit.runtime()
        state, status = await asyncio.gather(runtime.state(), runtime.owner.status())
        steps = list(state.history)
        last = visit.request.query_params.get("before", "")
        before = int(last) if last.isascii() and last.isdigit() else len(steps)
        shown = steps[max(0, before - STEPS_OF_A_PAGE) : before]
        return self._page(
            "runtime",
            visit.session,
            title=visit.name,
            name=visit.name,
            steps=shown[::-1],
            earlier=max(0, before - STEPS_OF_A_PAGE),
            count=len(steps),
            head=state.head,
            jail=status,
            variables=None if status.step is not None else await _variables(runtime),
            snapshots=() if status.step is not None else await runtime.owner.snapshots(),
        )

    async def _step(self, visit: Visit) -> Response:
        state, step = await visit.step()
        edges = [edge for edge in state.graph()["edges"] if edge["kind"] != "parent"]
        return self._page(
            "step",
            visit.session,
            title=f"{visit.name}, step {step.number}",
            name=visit.name,
            step=step,
            code=_marked(step.code, step.error.span if step.error is not None else None),
            usage=step.record.usage,
            outputs=[_shown(visit, index, output) for index, output in enumerate(step.outputs)],
            sources=[edge for edge in edges if edge["target"] == step.number],
            targets=[edge for edge in edges if edge["source"] == step.number],
            edited=step.code,
            plan=None,
        )

    async def _output(self, visit: Visit) -> Response:
        """An output that is not text, in the form that its page shows."""
        _, step = await visit.step()
        index = visit.request.path_params["output"]
        output = step.outputs[index] if index < len(step.outputs) else {}
        kind = next((each for each in (*_IMAGES, *_FRAMES) if each in output), None)
        if kind is None:
            return self._page(
                "failed", visit.session, 404, title="Not found", message="there is no such output"
            )
        return Response(output[kind], headers=_OF_JAILS, media_type=kind)

    async def _files(self, visit: Visit) -> Response:
        path = visit.request.query_params.get("path", "")
        entries = await (await visit.runtime()).author.files.list(path)
        return self._page(
            "files",
            visit.session,
            title=f"{visit.name}, files{f' in {path}' if path else ''}",
            name=visit.name,
            folder=f"{path.rstrip('/')}/" if path else "",
            entries=entries,
        )

    async def _file(self, visit: Visit) -> Response:
        """As a download, whatever it contains."""
        data = await (await visit.runtime()).author.files.read(visit.request.query_params.get("path", ""))
        stored = {"content-disposition": "attachment", "content-type": "application/octet-stream"}
        return Response(data, headers=_OF_JAILS | stored)

    # -- actions --

    async def _run(self, visit: Visit) -> Response:
        code = (await visit.form()).get("code", "")
        runtime = (await visit.runtime()).author
        task = asyncio.ensure_future(runtime.execute(code))
        self._running.add(task)
        task.add_done_callback(self._ran)
        done, _ = await asyncio.wait((task,), timeout=PATIENCE)
        if done:
            return _to(_url(visit.name, task.result().step))  # raises the reason why the cell could not run
        return _to(_url(visit.name))

    def _ran(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its page has shown it, or the record does

    async def _interrupt(self, visit: Visit) -> Response:
        await visit.form()
        await (await visit.runtime()).owner.interrupt()
        return _to(_url(visit.name))

    async def _snapshot(self, visit: Visit) -> Response:
        label = (await visit.form()).get("label", "").strip()
        await (await visit.runtime()).author.snapshot(label or None)
        return _to(_url(visit.name))

    async def _roll_back(self, visit: Visit) -> Response:
        await visit.form()
        await (await visit.runtime()).owner.rollback(visit.request.path_params["step"])
        return _to(_url(visit.name))

    async def _plan(self, visit: Visit) -> Response:
        """What an edit would run again; or runs it, where the form says so."""
        form = await visit.form()
        state, step = await visit.step()
        code = form.get("code", "")
        plan = await state.plan(Patch.replace_step(step.number, code, author=DOOR))
        result = await state.apply(plan) if form.get("apply") else None
        return self._page(
            "plan",
            visit.session,
            title=f"{visit.name}, an edit of step {step.number}",
            name=visit.name,
            step=step,
            edited=code,
            plan=plan,
            result=result,
        )


async def _variables(runtime: OpenRuntime) -> Sequence[VariableInfo] | None:
    """None while a cell uses the namespace."""
    try:
        return await asyncio.wait_for(runtime.author.describe(), PATIENCE)
    except TimeoutError:
        return None


def _shown(visit: Visit, index: int, output: Mapping[str, str | bytes]) -> Shown:
    url = f"{visit.request.url.path}/outputs/{index}"
    for kind, types in (("image", _IMAGES), ("frame", _FRAMES)):
        if any(each in output for each in types):
            return Shown(kind, url)
    found = next((output[each] for each in (*_TEXTS, *output) if isinstance(output.get(each), str)), "")
    return Shown("text", text=str(found))


def _marked(code: str, span: Span | None) -> tuple[str, str, str]:
    """The code before the failing expression, that, and the code after it."""
    if span is None:
        return code, "", ""
    lines = code.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + column

    begin, end = offset(span.line, span.column), offset(span.end_line, span.end_column)
    return code[:begin], code[begin:end], code[end:]


def _text(text: str) -> str:
    cut = (
        text
        if len(text) <= MOST_TEXT
        else f"{text[:MOST_TEXT]}\n... {len(text) - MOST_TEXT:,} more characters"
    )
    return printable(cut, lines=True)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else ""


def _seconds(duration: float) -> str:
    return f"{duration * 1000:.0f} ms" if duration < 1 else f"{duration:.1f} s"


def _url(name: str, step: int | None = None) -> str:
    page = f"/runtimes/{quote(name, safe='')}"
    return page if step is None else f"{page}/steps/{step}"


def _within(path: str) -> str:
    """A path of this console, whatever the link contains."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"


async def _no_icon(_: Request) -> Response:
    return Response(status_code=204)


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, headers=_HEADERS)


def _to_sign_in(request: Request) -> Response:
    to = request.url.path if request.method == "GET" else "/"
    return _to("/sign-in" if to == "/" else f"/sign-in?to={quote(to)}")
