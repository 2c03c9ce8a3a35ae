"""The console: pages about runtimes, for the callers of one HTTP application.

Output of a jail is hostile. Text is escaped, and without control characters. Anything else has a URL of its own, with
a policy by which a browser gives it no script, no form, no origin and no network; pages show it in frames and images.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from cenote.doors.callers import Callers, is_token
from cenote.doors.console import audit, doctor, fleet, jobs, runtimes, steps, teams
from cenote.doors.console.figures import FigureHistory
from cenote.doors.console.session import (
    DOOR,
    HERE,
    LONGEST,
    BegunCells,
    ConsoleSession,
    ConsoleSessions,
    Page,
    PageRoute,
    Templates,
    Visit,
    redirect,
)
from cenote.doors.http_api import status_of
from cenote.runtime.machine_report import MachineExams
from cenote_security.errors import CenoteError, NotAuthenticatedError, RejectedError

COOKIE: Final = "cenote_session"

_SUBJECTS: Final[tuple[tuple[PageRoute, ...], ...]] = (
    runtimes.ROUTES,
    steps.ROUTES,
    fleet.ROUTES,
    jobs.ROUTES,
    teams.ROUTES,
    audit.ROUTES,
    doctor.ROUTES,
)
"""The pages, by subject."""

SECTIONS: Final = (
    ("/", "Runtimes"),
    ("/fleet", "Fleet"),
    ("/jobs", "Jobs"),
    ("/teams", "Teams"),
    ("/references", "References"),
    ("/egress", "Network"),
    ("/audit", "Audit"),
    ("/doctor", "Doctor"),
)
"""The navigation."""

_TITLES: Final = {403: "Not allowed", 404: "Not found"}
"""Titles of error pages. A lost runtime is no error of the server."""


class Console:
    """All pages, for the callers of one application."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._sessions = ConsoleSessions()
        self._cells = BegunCells()
        self._templates = Templates(SECTIONS)
        self._figures = FigureHistory()
        self._exams = MachineExams()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/console.css", self._style),
            Route("/favicon.ico", _no_icon),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            self._route("POST", "/sign-out", self._sign_out),
            *(self._route(*route) for subject in _SUBJECTS for route in subject),
        ]

    async def watch(self) -> None:
        """Takes samples for the curves, until it is cancelled."""
        await self._figures.watch(self._callers.figures)

    async def close(self) -> None:
        """Interrupts the cells that pages have begun."""
        self._cells.interrupt()

    def _route(self, method: str, path: str, page: Page) -> Route:
        async def serve(request: Request) -> Response:
            cookie = request.cookies.get(COOKIE, "")
            session = self._sessions.get(cookie)
            if session is None:
                return _to_sign_in(request)
            try:
                caller = await self._callers.caller(session.token)
                door = caller.runtimes.through(DOOR)
                visit = Visit(
                    request, session, door, self._templates, self._cells, caller, self._figures, self._exams
                )
                return await page(visit)
            except NotAuthenticatedError:
                self._sessions.end(cookie)
                return _to_sign_in(request)
            except CenoteError as error:
                return self._failed(error, session, request.url.path)

        return Route(path, serve, methods=[method])

    def _failed(self, error: CenoteError, session: ConsoleSession, path: str) -> Response:
        status = status_of(error)
        title = _TITLES.get(status, "Not possible")
        return self._templates.page("failed", session, status, path, title=title, message=str(error))

    async def _style(self, _: Request) -> Response:
        return FileResponse(HERE / "console.css", headers={"x-content-type-options": "nosniff"})

    async def _sign_in(self, request: Request) -> Response:
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


def _within(path: str) -> str:
    """A path of this console, whatever the link contains."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"


async def _no_icon(_: Request) -> Response:
    return Response(status_code=204)


def _to_sign_in(request: Request) -> Response:
    to = request.url.path if request.method == "GET" else "/"
    return redirect("/sign-in" if to == "/" else f"/sign-in?to={quote(to)}")
