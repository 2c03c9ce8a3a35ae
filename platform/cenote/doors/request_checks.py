"""What is checked of each request before an operation sees it: the server's name, the page's origin, the token. Also
the answer to what is refused, and the trace that a request is part of.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cenote.doors.callers import is_token
from cenote.doors.open_runtimes import NotOpenError
from cenote.runtime.core.merging import MergeConflictError
from cenote.tracing import TRACEPARENT, TRACESTATE, continued
from cenote_security.errors import (
    CallTimeoutError,
    CenoteError,
    EntryExistsError,
    FileTakenError,
    JailError,
    NameExistsError,
    NotAuthenticatedError,
    QuotaExceededError,
    RejectedError,
    RuntimeClosedError,
    RuntimeExpiredError,
    RuntimeLostError,
    UnavailableError,
    UnknownEntryError,
    UnknownFileError,
    UnknownNameError,
    UnknownReferenceError,
    UnknownRuntimeError,
    UsageError,
)

log = logging.getLogger("cenote.http")


class TooLargeError(UsageError):
    """A request has more bytes than this process takes."""

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"{what} has more than {most:,} bytes; write it in parts, or from within a cell")


_STATUS: Final[tuple[tuple[type[CenoteError], int], ...]] = (
    (NotAuthenticatedError, 401),
    (QuotaExceededError, 429),
    (RuntimeLostError, 410),
    (RuntimeClosedError, 410),
    (RuntimeExpiredError, 410),
    (RejectedError, 403),
    (MergeConflictError, 409),
    (NameExistsError, 409),
    (EntryExistsError, 409),
    (FileTakenError, 409),
    (TooLargeError, 413),
    (NotOpenError, 404),
    (UnknownRuntimeError, 404),
    (UnknownNameError, 404),
    (UnknownFileError, 404),
    (UnknownEntryError, 404),
    (UnknownReferenceError, 404),
    (UsageError, 400),
    (UnavailableError, 503),
    (CallTimeoutError, 504),
    (JailError, 500),
)
"""The first that fits."""


def status_of(error: CenoteError) -> int:
    """The status of the answer to a failed request."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


class ServerNames:
    """The names of a server: host names, addresses with or without brackets, and `*.` for all names below one.

    A wildcard address (`0.0.0.0`, `::`) is not a name.
    """

    def __init__(self, names: Sequence[str]) -> None:
        plain = {_plain(name) for name in names} - {"0.0.0.0", "::"}
        self._names = {name for name in plain if "*" not in name}
        self._domains = tuple(name[1:] for name in plain if name.startswith("*.") and len(name) > 2)

    def have(self, name: str) -> bool:
        plain = _plain(name)
        return plain in self._names or plain.endswith(self._domains)


def _plain(name: str) -> str:
    """Each name and each address in one spelling."""
    bare = name.strip().removeprefix("[").removesuffix("]").removesuffix(".").lower()
    try:
        return str(ip_address(bare))
    except ValueError:
        return bare


_SITE: Final = re.compile(
    r"(?:https?://)?(?P<host>\[[0-9a-fA-F.]*:[0-9a-fA-F:.]*\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{0,5}))?"
)
"""A `Host`, or an `Origin`. Anything else is not parsed: parsers of URLs differ in how they read it."""


class SiteCheck:
    """Refuses requests by a name that is not the server's, and a browser's requests for a page of another site."""

    def __init__(self, app: ASGIApp, names: ServerNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers") or ())
        host, origin = (headers.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
        answer: Response | None = None
        if scope["type"] == "lifespan":
            pass
        elif "/" in host or not self._is_ours(host):
            said = f"the server is not called {host!r:.200}; `cenote serve --name` and certificates give it names"
            answer = error_answer(400, "RejectedError", said)
        elif origin and ("/" not in origin or not self._is_ours(origin)):
            answer = error_answer(403, "RejectedError", f"requests of pages from {origin!r:.200} are refused")
        await (answer or self._app)(scope, receive, send)

    def _is_ours(self, site: str) -> bool:
        found = _SITE.fullmatch(site)
        return found is not None and int(found["port"] or 0) < 2**16 and self._names.have(found["host"])


class TraceContext:
    """Makes a request part of the trace that its client has begun, where this server traces."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers") or ())
        given = {
            name: headers[name.encode()].decode("latin-1")
            for name in (TRACEPARENT, TRACESTATE)
            if name.encode() in headers
        }
        with continued(given):
            await self._app(scope, receive, send)


def token_of(request: Request) -> str:
    """The bearer token of a request. Raises NotAuthenticatedError."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not is_token(token.strip()):
        raise NotAuthenticatedError("send a token: `Authorization: Bearer ...`")
    return token.strip()


def key_of(request: Request) -> str:
    """The same of a request by E2B's SDKs. Raises NotAuthenticatedError."""
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    key = request.headers.get("x-api-key", "").strip() or bearer.strip()
    if is_token(key):
        return key
    raise NotAuthenticatedError("send a token of this server as the API key (E2B_API_KEY)")


def refusal(error: CenoteError) -> Response:
    """The answer to a request that failed."""
    status = status_of(error)
    if status == 500:
        log.error("a request failed: %s", error)
    answer = error_answer(status, type(error).__name__, str(error))
    if status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    return answer


def error_answer(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The one form of all errors."""
    return JSONResponse({"error": {"type": kind, "message": message}}, status, headers)
