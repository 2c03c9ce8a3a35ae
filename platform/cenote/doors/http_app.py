"""One HTTP application for all doors that use it: Cenote's own interface with its OpenAPI document, and MCP.

Each request carries a token, except for `/healthz`, `/readyz` and `/openapi.json`. Names in `Host` and `Origin` are
checked, so that no page in a browser can reach a server on the loopback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Any, Final, Literal

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cenote.doors.callers import Caller, Callers
from cenote.doors.console.app import PAGES, Console
from cenote.doors.console.operations import SECTIONS, Operations
from cenote.doors.e2b.control import E2bControl, E2bPorts
from cenote.doors.e2b.sandboxes import E2bSandboxes, SandboxGoneError
from cenote.doors.http_api import OPERATIONS, HttpOperation, endpoint
from cenote.doors.metrics import BUILD_INFO, READY, MetricSample, exposition
from cenote.doors.open_runtimes import OpenRuntimes
from cenote.doors.request_checks import ServerNames, SiteCheck, TraceContext, error_answer, refusal, token_of
from cenote_security.errors import (
    CenoteError,
)
from cenote_security.extras import importing
from cenote_security.policy import SandboxPolicy

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")

log = logging.getLogger("cenote.http")


async def _always_ready() -> Mapping[str, object]:
    return {"ready": True, "causes": []}


def http_app(
    callers: Callers,
    hosts: Sequence[str] = LOOPBACK,
    policy: SandboxPolicy | None = None,
    health: Callable[[], Awaitable[Mapping[str, object]]] = _always_ready,
) -> Starlette:
    """hosts: the names by which clients reach it. policy: of E2B's sandboxes. health: `ready`, or not for these
    `causes`.
    """

    async def healthz(_: Request) -> Response:
        """Alive, whatever the condition: probes that restart a server use this."""
        return JSONResponse({"status": "ok", "version": version("cenote"), **await health()})

    async def readyz(_: Request) -> Response:
        found = await health()
        return JSONResponse(found, 200 if found["ready"] else 503)

    async def metrics(request: Request) -> Response:
        samples = [*await callers.samples(token_of(request))]
        samples.append(MetricSample(READY, bool((await health())["ready"])))
        samples.append(MetricSample(BUILD_INFO, 1, (version("cenote"),)))
        text, kind = exposition(samples, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind})

    sandboxes = E2bSandboxes(policy or SandboxPolicy())
    logging.getLogger("uvicorn.error").addFilter(_is_meant)
    mcp = McpEndpoint(callers)
    routes: list[BaseRoute] = [  # tried in this order: those of frequent requests go first
        Route("/mcp", mcp, methods=["GET", "POST", "DELETE"]),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/openapi.json", _document),
        *(_route(operation, callers) for operation in OPERATIONS),
        *E2bControl(callers, sandboxes).routes(),
        *E2bPorts(sandboxes).routes(),
    ]
    operations = Operations(callers)
    console = Console(callers, (*PAGES, *operations.routes()), sections=SECTIONS)
    routes += console.routes()

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        working = [asyncio.create_task(work) for work in (sandboxes.sweep(), operations.watch())]
        try:
            yield
        finally:
            for task in working:
                task.cancel()
            await sandboxes.close()
            await mcp.close()
            await console.close()
            await callers.close()

    return Starlette(
        routes=routes,
        lifespan=life,
        middleware=[
            Middleware(SiteCheck, names=ServerNames(hosts)),
            Middleware(TraceContext),
        ],
        exception_handlers={CenoteError: _refused, HTTPException: _unrouted, ClientDisconnect: _left},
    )


def _is_meant(record: logging.LogRecord) -> bool:
    """Whether a failure is a real one: a connection that was cut on purpose is not."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, SandboxGoneError):
        error = error.__cause__ or error.__context__
    return error is None


def _route(operation: HttpOperation, callers: Callers) -> Route:
    async def caller_of(request: Request) -> Caller:
        return await callers.caller(token_of(request))

    return Route(operation.path, endpoint(operation, caller_of), methods=[operation.method])


class McpEndpoint:
    """MCP over HTTP, for callers with a valid token. The first request loads its SDK, which takes 25 MiB."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._app: ASGIApp | None = None
        self._starting = asyncio.Lock()
        self._over = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._callers.runtimes(token_of(Request(scope)))
            app = await self._started()
        except CenoteError as error:
            await refusal(error)(scope, receive, send)
        else:
            await app(scope, receive, send)

    async def close(self) -> None:
        self._over.set()
        if self._serving is not None:
            await self._serving

    async def _started(self) -> ASGIApp:
        async with self._starting:
            if self._app is None:
                ready: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
                self._serving = asyncio.create_task(self._serve(ready))
                self._app = await ready
        return self._app

    async def _serve(self, ready: asyncio.Future[ASGIApp]) -> None:
        """Holds the SDK's context, which one task must enter and leave."""
        try:
            server, app = await asyncio.to_thread(self._made)
            async with server.session_manager.run():
                ready.set_result(app)
                await self._over.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def _made(self) -> tuple[Any, ASGIApp]:
        with importing("MCP", "mcp"):
            from mcp.server.transport_security import TransportSecuritySettings

            from cenote.doors.mcp_server import Context, mcp_server

        async def runtimes_of(context: Context) -> OpenRuntimes:
            assert isinstance(context.request, Request), "over HTTP, each call has a request"
            return await self._callers.runtimes(token_of(context.request))

        server = mcp_server(runtimes_of)
        # Names in Host and Origin are checked for the whole application.
        checks = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        (route,) = server.streamable_http_app(stateless_http=True, transport_security=checks).routes
        assert isinstance(route, Route)
        return server, route.app


async def _document(_: Request) -> Response:
    return JSONResponse(openapi())


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, CenoteError)
    return refusal(error)


async def _unrouted(request: Request, error: Exception) -> Response:
    """A path that there is not, or not with this method. Starlette names the methods of one route alone."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    methods = sorted(
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    )
    if error.status_code == 405 and methods:
        said = f"{request.method} is not for {path!r:.200}, {', '.join(methods)} are; see /openapi.json"
        return error_answer(405, "UsageError", said, {"allow": ", ".join(methods)})
    if error.status_code == 404:
        return error_answer(404, "UnknownPathError", f"nothing is at {path!r:.200}; see /openapi.json")
    return error_answer(error.status_code, "UsageError", error.detail, error.headers)


async def _left(_: Request, __: Exception) -> Response:
    return Response(status_code=499)


_Mode = Literal["validation", "serialization"]

_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            "required": ["type", "message"],
        }
    },
    "required": ["error"],
}


@cache
def openapi() -> dict[str, Any]:
    """The document, as JSON data."""
    wanted: list[tuple[int, _Mode, TypeAdapter[Any]]] = [
        (index, mode, TypeAdapter(kind))
        for index, operation in enumerate(OPERATIONS)
        for mode, kind in _kinds(operation)
        if kind is not None and not isinstance(kind, str)
    ]
    schemas, shared = TypeAdapter.json_schemas(wanted, ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for index, operation in enumerate(OPERATIONS):
        path = paths.setdefault(operation.path.replace(":file}", "}"), {})
        body, answer = schemas.get((index, "validation")), schemas.get((index, "serialization"))
        path[operation.method.lower()] = _described(operation, body, answer)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Cenote", "version": version("cenote")},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": shared.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kinds(operation: HttpOperation) -> tuple[tuple[_Mode, Any], tuple[_Mode, Any]]:
    return ("validation", operation.body), ("serialization", operation.answer)


def _described(operation: HttpOperation, body: Any, answer: Any) -> dict[str, Any]:
    names = [part[1:-1].removesuffix(":file") for part in operation.path.split("/") if part.startswith("{")]
    done = {"description": "done", **_content(operation.answer, answer)}
    for mime, what in operation.also.items():
        done["content"][mime] = {"schema": {"type": "string", "description": what}}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
        + [
            {"name": name, "in": "query", "description": what, "schema": {"type": "string"}}
            for name, what in operation.query.items()
        ],
        "responses": {
            str(operation.status): done,
            "default": {"description": "refused, with the reason", **_content(dict, _ERROR)},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, **_content(operation.body, body)}
    return described


def _content(kind: Any, schema: Any) -> dict[str, Any]:
    if kind is None:
        return {}
    mime = kind if isinstance(kind, str) else "application/json"
    return {"content": {mime: {"schema": schema if schema is not None else {}}}}
