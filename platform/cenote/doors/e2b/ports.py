"""The ports of a sandbox: which of them a request means, whose sandbox it is, and what serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cenote.doors.e2b.control import refusal
from cenote.doors.e2b.envd import E2bProcesses, failed
from cenote.doors.e2b.files import E2bFiles
from cenote.doors.e2b.interpreter import E2bInterpreter
from cenote.doors.e2b.sandboxes import E2bSandbox, E2bSandboxes
from cenote.doors.misfits import misfit
from cenote.doors.open_runtimes import NotOpenError
from cenote_security.errors import CenoteError

Serve = Callable[[E2bSandbox, Request], Awaitable[Response]]

GONE: Final = 502
"""How E2B's own proxy answers for a sandbox that is not there."""


@dataclass(frozen=True, slots=True)
class E2bPorts:
    """The routes of all ports. A sandbox is named by the header `E2b-Sandbox-Id`."""

    sandboxes: E2bSandboxes

    def routes(self) -> list[Route]:
        interpreter, processes, files = E2bInterpreter(), E2bProcesses(), E2bFiles()
        routes = [
            self._route("POST", "/execute", interpreter.execute, refusal),
            self._route("GET", "/contexts", interpreter.contexts, refusal),
            self._route("POST", "/contexts", interpreter.contexts, refusal),
            self._route("DELETE", "/contexts/{context}", interpreter.context, refusal),
            self._route("POST", "/contexts/{context}/restart", interpreter.context, refusal),
            self._route("GET", "/health", _healthy, refusal),
            self._route("GET", "/files", files.download, refusal),
            self._route("POST", "/files", files.upload, refusal),
        ]
        for service, calls in (
            ("process.Process", processes.calls()),
            ("filesystem.Filesystem", files.calls()),
        ):
            routes += [
                self._route("POST", f"/{service}/{name}", serve, failed) for name, serve in calls.items()
            ]
        return routes

    def _route(
        self, method: str, path: str, serve: Serve, refused: Callable[[CenoteError], Response]
    ) -> Route:
        async def served(request: Request) -> Response:
            headers = request.headers
            secret = headers.get("x-access-token") or headers.get("e2b-traffic-access-token") or ""
            try:
                sandbox = self.sandboxes.reach(headers.get("e2b-sandbox-id", ""), secret)
            except NotOpenError as error:
                message = f"The sandbox was not found: {error}"
                return JSONResponse({"sandboxId": error.name, "message": message, "code": GONE}, GONE)
            except CenoteError as error:
                return refused(error)
            try:
                return await serve(sandbox, request)
            except ValidationError as error:
                return refused(misfit("the request does", error))
            except CenoteError as error:
                return refused(error)

        return Route(path, served, methods=[method])


async def _healthy(_: E2bSandbox, __: Request) -> Response:
    return Response(status_code=204)
