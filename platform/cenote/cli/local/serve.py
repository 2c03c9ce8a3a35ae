"""`cenote serve`: runtimes over HTTP, of this process or of a platform."""

from __future__ import annotations

import argparse
import os
import secrets
import ssl
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cenote.cli.arguments import add_policy_options, policy_from
from cenote.cli.exit_status import ExitStatus
from cenote.cli.local.mcp import add_source_options, source_from
from cenote.runtime.remote.address import HTTP_PORT, TOKEN, destination, token_file
from cenote.terminal.screen import Screen
from cenote_security.auth.secret_files import kept_secret
from cenote_security.errors import UsageError
from cenote_security.extras import importing

if TYPE_CHECKING:
    from cenote.doors.callers import Callers

EPILOG = """Clients send `Authorization: Bearer TOKEN`: a token of the platform, or the one of this server, which is
CENOTE_TOKEN or in the file that is named at the start. /openapi.json describes the interface, MCP clients use /mcp.
Exit status: 130 ended by Ctrl-C, 143 by SIGTERM, 2 wrong usage, 4 port, platform or extra not available."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("serve", help="runtimes over HTTP: REST and MCP", epilog=EPILOG)
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen (default %(default)s; others take TLS)"
    )
    parser.add_argument("--port", type=int, default=HTTP_PORT, help="default %(default)s")
    parser.add_argument(
        "--name",
        action="append",
        metavar="HOST",
        help="a name by which clients reach it, besides localhost; may be repeated",
    )
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="a certificate")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its key")
    parser.add_argument("--otlp", metavar="URL", help="send traces to the collector there, by OTLP over HTTP")
    add_source_options(parser)
    add_policy_options(parser)
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    with importing("HTTP", "http"):
        from cenote.doors.http_app import LOOPBACK, http_app
        from cenote.doors.http_server import listen, server, url_of
        from cenote.doors.otlp import export_to
    _check(arguments)
    tls = _tls(arguments)
    listening = listen(arguments.host, arguments.port)
    callers, token = _callers(arguments)
    names = {arguments.host, *(arguments.name or ()), *LOOPBACK}
    app = http_app(callers, sorted(names), policy_from(arguments))
    scheme = "https" if arguments.tls_cert else "http"
    Screen().line(f"listening on {url_of(scheme, arguments.host, listening)}; {token}")
    flush = export_to(arguments.otlp, "cenote") if arguments.otlp else lambda: None
    try:
        server(app, tls).run([listening])
    finally:
        flush()
    return ExitStatus.OK


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    """Raises UsageError for files that are no certificate and its key."""
    if arguments.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(arguments.tls_cert, arguments.tls_key)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{arguments.tls_cert} and {arguments.tls_key} are no certificate and its key: {error}"
        ) from None
    return context


def _check(arguments: argparse.Namespace) -> None:
    loopback = arguments.host in ("127.0.0.1", "::1", "localhost")
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together")
    if not loopback and arguments.tls_cert is None:
        raise UsageError(
            f"tokens would be readable on the way to {arguments.host}: give --tls-cert and --tls-key"
        )


def _callers(arguments: argparse.Namespace) -> tuple[Callers, str]:
    """Who may call, and a line on where they have a token from."""
    from cenote.connection import Platform
    from cenote.doors.callers import OneCaller, PlatformCallers
    from cenote.doors.open_runtimes import OpenRuntimes

    where = destination(arguments.address)
    if where is not None:

        def connected(token: str) -> Platform:
            return Platform(replace(where, token=token))

        def opened(platform: Platform) -> OpenRuntimes:
            return OpenRuntimes(source_from(arguments, platform))

        source_from(arguments)  # so that wrong options are said now
        return PlatformCallers(connected, opened), f"tokens are those of the platform at {where.address}"
    runtimes = OpenRuntimes(source_from(arguments))
    if token := os.environ.get(TOKEN, "").strip():
        return OneCaller(token, runtimes), f"the token is what {TOKEN} says"
    path = token_file().with_name("serve-token")
    token = kept_secret(path, lambda: secrets.token_urlsafe(32).encode()).decode().strip()
    return OneCaller(token, runtimes), f"the token is in {path}"
