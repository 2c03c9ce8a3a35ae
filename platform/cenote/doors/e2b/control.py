"""E2B's control interface, and the ports of a sandbox.

Sandboxes are made, listed, paused, forked and ended. A request to a port of a sandbox is served by what listens
there: the daemon, files, the code interpreter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cenote.doors.callers import Callers
from cenote.doors.e2b.envd import E2bProcesses, failed
from cenote.doors.e2b.files import E2bFiles
from cenote.doors.e2b.interpreter import E2bInterpreter
from cenote.doors.e2b.sandboxes import DEFAULT_TIMEOUT, E2bSandbox, E2bSandboxes
from cenote.doors.http_api import MOST_JSON, body_of
from cenote.doors.http_models import bad_arguments
from cenote.doors.open_runtimes import NotOpenError, OpenRuntimes
from cenote.doors.request_checks import key_of
from cenote_security.errors import (
    CenoteError,
    NotAuthenticatedError,
    QuotaExceededError,
    RejectedError,
    RuntimeExpiredError,
    RuntimeLostError,
    UnavailableError,
    UnknownFileError,
    UsageError,
)

ENVD_VERSION: Final = "0.6.8"
"""The version of E2B's own daemon whose interface this is: E2B's SDKs choose their requests by it."""

_STATUS: Final[tuple[tuple[type[CenoteError], int], ...]] = (
    (NotAuthenticatedError, 401),
    (QuotaExceededError, 429),
    (RuntimeLostError, 404),
    (RuntimeExpiredError, 404),
    (RejectedError, 403),
    (NotOpenError, 404),
    (UnknownFileError, 404),
    (UsageError, 400),
    (UnavailableError, 503),
)


Body = TypeVar("Body", bound=BaseModel)


class _Wanted(BaseModel):
    """What is not offered is ignored where it asks for less, and refused where it asks for more."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class _NewSandbox(_Wanted):
    template: Annotated[str, Field(alias="templateID")]
    timeout: int = DEFAULT_TIMEOUT
    auto_pause: Annotated[bool, Field(alias="autoPause")] = False
    metadata: dict[str, str] = {}
    env: Annotated[dict[str, str], Field(alias="envVars")] = {}
    network: dict[str, Any] | None = None
    volumes: Annotated[list[Any] | None, Field(alias="volumeMounts")] = None
    mcp: dict[str, Any] | None = None


class _Timeout(_Wanted):
    timeout: int = DEFAULT_TIMEOUT


class _Duration(_Wanted):
    duration: int = DEFAULT_TIMEOUT


class _Fork(_Wanted):
    timeout: int = DEFAULT_TIMEOUT
    count: Annotated[int, Field(ge=1, le=20)] = 1


@dataclass(frozen=True, slots=True)
class E2bControl:
    """The routes of the control interface."""

    callers: Callers
    sandboxes: E2bSandboxes

    def routes(self) -> list[Route]:
        def at(
            method: str, path: str, serve: Callable[[Request, OpenRuntimes], Awaitable[Response]]
        ) -> Route:
            async def served(request: Request) -> Response:
                try:
                    return await serve(request, await self.callers.runtimes(key_of(request)))
                except CenoteError as error:
                    return refusal(error)

            return Route(path, served, methods=[method])

        one = "/sandboxes/{id}"
        return [
            at("POST", "/sandboxes", self._create),
            at("POST", "/v2/sandboxes", self._create),
            at("GET", "/sandboxes", self._list),
            at("GET", "/v2/sandboxes", self._list),
            at("GET", one, self._show),
            at("DELETE", one, self._kill),
            at("POST", f"{one}/timeout", self._set_timeout),
            at("POST", f"{one}/refreshes", self._refresh),
            at("POST", f"{one}/pause", self._pause),
            at("POST", f"{one}/resume", self._connect),
            at("POST", f"{one}/connect", self._connect),
            at("POST", "/v2/sandboxes/{id}/connect", self._connect),
            at("POST", f"{one}/fork", self._fork),
            at("POST", f"{one}/snapshots", self._snapshot),
            at("GET", "/snapshots", self._snapshots),
            at("DELETE", "/templates/{id}", self._forget_snapshot),
            at("GET", f"{one}/metrics", self._metrics),
            at("GET", f"{one}/logs", self._logs),
            at("GET", "/v2/sandboxes/{id}/logs", self._logs),
            at("PUT", f"{one}/network", self._network),
        ]

    async def _create(self, request: Request, runtimes: OpenRuntimes) -> Response:
        wanted = await _body(request, _NewSandbox)
        rules = {key for key, value in (wanted.network or {}).items() if value} - {"allowPublicTraffic"}
        for what, asked in (
            ("volumes", wanted.volumes),
            ("MCP servers", wanted.mcp),
            ("network rules", rules),
        ):
            if asked:
                raise UsageError(
                    f"{what} cannot be had here: what a sandbox may reach is set where the server is started"
                )
        made = await self.sandboxes.create(
            runtimes,
            template=wanted.template,
            timeout=wanted.timeout,
            metadata=wanted.metadata,
            env=wanted.env,
            pauses=wanted.auto_pause,
        )
        return JSONResponse(_made(made), 201)

    async def _list(self, request: Request, runtimes: OpenRuntimes) -> Response:
        query = request.query_params
        found = self.sandboxes.of(runtimes)
        states = {state for each in query.getlist("state") for state in each.split(",")}
        wanted = {(unquote(key), unquote(value)) for key, value in parse_qsl(query.get("metadata", ""))}
        found = [
            each
            for each in found
            if (not states or each.state in states)
            and wanted <= set(each.metadata.items())
            and query.get("template", each.template) == each.template
        ]
        if query.get("order") == "asc":
            found.reverse()
        found.reverse()
        start, limit = _page(query.get("nextToken", "0")), _page(query.get("limit", "100"))
        answer = JSONResponse([_listed(each) for each in found[start : start + limit]])
        if start + limit < len(found):
            answer.headers["x-next-token"] = str(start + limit)
        return answer

    async def _show(self, request: Request, runtimes: OpenRuntimes) -> Response:
        found = self._found(request, runtimes)
        return JSONResponse({**_listed(found), "envdAccessToken": found.secret, "domain": None})

    async def _kill(self, request: Request, runtimes: OpenRuntimes) -> Response:
        await self.sandboxes.kill(self._found(request, runtimes))
        return Response(status_code=204)

    async def _set_timeout(self, request: Request, runtimes: OpenRuntimes) -> Response:
        self._found(request, runtimes).lives((await _body(request, _Timeout)).timeout)
        return Response(status_code=204)

    async def _refresh(self, request: Request, runtimes: OpenRuntimes) -> Response:
        self._found(request, runtimes).lives((await _body(request, _Duration)).duration)
        return Response(status_code=204)

    async def _pause(self, request: Request, runtimes: OpenRuntimes) -> Response:
        sandbox = self._found(request, runtimes)
        if sandbox.state == "paused":
            return _error(409, f"sandbox {sandbox.id} is paused already")
        await self.sandboxes.pause(sandbox)
        return Response(status_code=204)

    async def _connect(self, request: Request, runtimes: OpenRuntimes) -> Response:
        sandbox, timeout = self._found(request, runtimes), (await _body(request, _Timeout)).timeout
        was, sandbox.state = sandbox.state, "running"
        sandbox.lives(timeout)
        return JSONResponse(_made(sandbox), 201 if was == "paused" else 200)

    async def _fork(self, request: Request, runtimes: OpenRuntimes) -> Response:
        wanted = await _body(request, _Fork)
        made = await self.sandboxes.fork(self._found(request, runtimes), wanted.count, wanted.timeout)
        return JSONResponse([{"sandbox": _made(each)} for each in made], 201)

    async def _snapshot(self, request: Request, runtimes: OpenRuntimes) -> Response:
        name = await self.sandboxes.snapshot(self._found(request, runtimes))
        return JSONResponse({"snapshotID": name, "names": [name]}, 201)

    async def _snapshots(self, _: Request, runtimes: OpenRuntimes) -> Response:
        return JSONResponse(
            [{"snapshotID": one, "names": [one]} for one in self.sandboxes.snapshots(runtimes)]
        )

    async def _forget_snapshot(self, request: Request, runtimes: OpenRuntimes) -> Response:
        await self.sandboxes.forget_snapshot(request.path_params["id"], runtimes)
        return Response(status_code=204)

    async def _metrics(self, request: Request, runtimes: OpenRuntimes) -> Response:
        sandbox = self._found(request, runtimes)
        status, now = await (await sandbox.runtime()).owner.status(), datetime.now(UTC)
        measured = {
            "timestamp": now.isoformat(),
            "timestampUnix": int(now.timestamp()),
            "cpuCount": sandbox.policy.whole_cpus,
            "cpuUsedPct": 0.0,
            "memUsed": status.memory,
            "memTotal": sandbox.policy.memory_bytes,
            "memCache": 0,
            "diskUsed": 0,
            "diskTotal": sandbox.policy.disk_bytes,
        }
        return JSONResponse([measured])

    async def _logs(self, request: Request, runtimes: OpenRuntimes) -> Response:
        self._found(request, runtimes)
        return JSONResponse({"logs": [], "logEntries": []})

    async def _network(self, request: Request, runtimes: OpenRuntimes) -> Response:
        self._found(request, runtimes)
        return _error(
            501, "what a sandbox may reach is set where the server is started: cenote serve --allow NAME"
        )

    def _found(self, request: Request, runtimes: OpenRuntimes) -> E2bSandbox:
        return self.sandboxes.find(request.path_params["id"], runtimes)


def refusal(error: CenoteError) -> Response:
    """In the form that E2B's SDKs expect."""
    return _error(next((status for kind, status in _STATUS if isinstance(error, kind)), 500), str(error))


def _error(status: int, message: str) -> Response:
    return JSONResponse({"code": status, "message": message}, status)


async def _body(request: Request, kind: type[Body]) -> Body:
    text = await body_of(request, MOST_JSON, "the request")
    try:
        return kind.model_validate_json(text or b"{}")
    except ValidationError as error:
        raise bad_arguments("the request does", error) from None


def _page(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"`limit` and `nextToken` are whole numbers, not {text!r:.100}")
    return int(text)


def _made(sandbox: E2bSandbox) -> dict[str, Any]:
    return {
        "templateID": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": "cenote",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": sandbox.secret,
        "trafficAccessToken": sandbox.secret,
        "domain": None,
    }


def _listed(sandbox: E2bSandbox) -> dict[str, Any]:
    policy = sandbox.policy
    return {
        "templateID": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": "cenote",
        "startedAt": sandbox.started.isoformat(),
        "endAt": sandbox.end_at.isoformat(),
        "cpuCount": policy.whole_cpus,
        "memoryMB": policy.memory_bytes // 2**20,
        "diskSizeMB": policy.disk_bytes // 2**20,
        "state": sandbox.state,
        "envdVersion": ENVD_VERSION,
        "metadata": dict(sandbox.metadata),
    }


Serve = Callable[[E2bSandbox, Request], Awaitable[Response]]

GONE: Final = 502
"""The answer of E2B's own proxy for an unknown sandbox."""


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
                return refused(bad_arguments("the request does", error))
            except CenoteError as error:
                return refused(error)

        return Route(path, served, methods=[method])


async def _healthy(_: E2bSandbox, __: Request) -> Response:
    return Response(status_code=204)
