"""The console: pages about runtimes, for the callers of one HTTP application.

Output of a jail is hostile. Text is escaped, and without control characters. Anything else has a URL of its own, with
a policy by which a browser gives it no script, no form, no origin and no network; pages show it in frames and images.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from cenote.doors.callers import is_token
from cenote.doors.console import branches, graph, runtimes, steps
from cenote.doors.console.live import LiveCells
from cenote.doors.console.session import (
    DOOR,
    HERE,
    LONGEST,
    ConsoleCallers,
    ConsoleSession,
    ConsoleSessions,
    Page,
    PageRoute,
    Section,
    Templates,
    Visit,
    redirect,
)
from cenote.doors.request_checks import status_of
from cenote_security.errors import CenoteError, NotAuthenticatedError, RejectedError

COOKIE: Final = "cenote_session"

RECORD_PAGES: Final[tuple[PageRoute, ...]] = (
    *runtimes.ROUTES,
    *steps.ROUTES,
    *graph.ROUTES,
    *branches.ROUTES,
)
"""Pages of one runtime, of a stored record, too."""

PAGES: Final[tuple[PageRoute, ...]] = (("GET", "/", runtimes.fleet), *RECORD_PAGES)

_ASSETS: Final = ("console.css", "states.css", "live.js")

_TITLES: Final = {403: "Not allowed", 404: "Not found"}
"""Titles of error pages. A lost runtime is no error of the server."""


SOON: Final = 0.2
"""Seconds after which a browser is shown that a page is being made."""

FETCHED_WITHIN: Final = 30.0
"""Seconds for which a page that has become ready waits for its browser, which asks every second."""


class SlowPages:
    """Pages that are being made, each until its browser has fetched it: of long records, and of busy runtimes."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], asyncio.Task[Response]] = {}
        """By cookie and URL."""

    async def get(self, key: tuple[str, str], page: Coroutine[Any, Any, Response]) -> Response | None:
        """The page; None while it is being made. Raises what the page does.

        page: not run where the page is being made already.
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.ensure_future(page)
            task.add_done_callback(lambda made: self._expire(key, made))
        else:
            page.close()
        done, _ = await asyncio.wait((task,), timeout=SOON)
        if not done:
            return None
        self._forget(key, task)
        return task.result()

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _expire(self, key: tuple[str, str], made: asyncio.Task[Response]) -> None:
        if not made.cancelled():
            made.exception()  # raised where the page is fetched
        made.get_loop().call_later(FETCHED_WITHIN, self._forget, key, made)

    def _forget(self, key: tuple[str, str], made: asyncio.Task[Response]) -> None:
        if self._tasks.get(key) is made:
            del self._tasks[key]


class Console:
    """All pages, for the callers of one application."""

    def __init__(
        self,
        callers: ConsoleCallers,
        pages: Sequence[PageRoute] = PAGES,
        redeem: Callable[[str], str] | None = None,
        sections: Sequence[Section] = (),
    ) -> None:
        """redeem: gives a token for the one in an address that opens the console once, if there are such addresses.
        Raises NotAuthenticatedError. sections: of the navigation.
        """
        self._callers = callers
        self._redeem = redeem
        self._pages = pages
        self._sessions = ConsoleSessions()
        self._cells = LiveCells()
        self._slow = SlowPages()
        self._templates = Templates(sections)

    def routes(self) -> list[BaseRoute]:
        return [
            *(Route(f"/{name}", _asset(name)) for name in _ASSETS),
            Route("/favicon.ico", _no_icon),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            self._route("POST", "/sign-out", self._sign_out),
            *(self._route(*route) for route in self._pages),
        ]

    async def close(self) -> None:
        """Interrupts the cells that pages have begun."""
        self._slow.cancel()
        self._cells.interrupt()

    def _route(self, method: str, path: str, page: Page) -> Route:
        async def serve(request: Request) -> Response:
            cookie = request.cookies.get(COOKIE, "")
            session = self._sessions.get(cookie)
            if session is None:
                return _to_sign_in(request)
            try:
                seen = await self._callers.runtimes(session.token)
                door = seen.through(DOOR)
                visit = Visit(request, session, door, seen.changes, self._templates, self._cells)
                return await self._served(cookie, visit, page)
            except NotAuthenticatedError:
                self._sessions.end(cookie)
                return _to_sign_in(request)
            except CenoteError as error:
                return self._failed(error, session, request.url.path)

        return Route(path, serve, methods=[method])

    async def _served(self, cookie: str, visit: Visit, page: Page) -> Response:
        """Only a page that is a browser's whole document can load itself again; an image or a frame cannot."""
        request = visit.request
        if request.method != "GET" or request.headers.get("sec-fetch-dest") != "document":
            return await page(visit)
        made = await self._slow.get((cookie, str(request.url)), page(visit))
        return made or visit.page("slow", 202, title="Being made")

    def _failed(self, error: CenoteError, session: ConsoleSession, path: str) -> Response:
        status = status_of(error)
        title = _TITLES.get(status, "Not possible")
        return self._templates.page("failed", session, status, path, title=title, message=str(error))

    async def _sign_in(self, request: Request) -> Response:
        if request.method == "GET" and self._redeem is not None and "once" in request.query_params:
            return self._opened_once(request, self._redeem)
        if request.method == "GET":
            return self._templates.page(
                "sign_in", None, message="", to=_within(request.query_params.get("to", "/"))
            )
        form = await request.form()
        token, to = str(form.get("token", "")).strip(), _within(str(form.get("to", "/")))
        try:
            if not is_token(token):
                raise NotAuthenticatedError("this is no token")
            await self._callers.runtimes(token)
        except RejectedError as error:
            return self._templates.page("sign_in", None, 401, message=str(error), to=to)
        except CenoteError as error:
            return self._templates.page("sign_in", None, 503, message=str(error), to=to)
        return self._begun(request, token, to)

    def _opened_once(self, request: Request, redeem: Callable[[str], str]) -> Response:
        """The address itself shows nothing, so that a page does not have the token in its own."""
        try:
            token = redeem(request.query_params["once"])
        except NotAuthenticatedError as error:
            return self._templates.page("sign_in", None, 401, message=str(error), to="/")
        return self._begun(request, token, "/")

    def _begun(self, request: Request, token: str, to: str) -> Response:
        answer = redirect(to)
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
        answer = redirect("/sign-in")
        answer.delete_cookie(COOKIE)
        return answer


def _asset(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(_: Request) -> Response:
        return FileResponse(HERE / name, headers={"x-content-type-options": "nosniff"})

    return serve


def _within(path: str) -> str:
    """A path of this console, whatever the link contains."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"


async def _no_icon(_: Request) -> Response:
    return Response(status_code=204)


def _to_sign_in(request: Request) -> Response:
    to = request.url.path if request.method == "GET" else "/"
    return redirect("/sign-in" if to == "/" else f"/sign-in?to={quote(to)}")
