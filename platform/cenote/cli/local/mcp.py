"""`cenote mcp`: runtimes for clients of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from typing import TYPE_CHECKING

from cenote.cli.arguments import add_policy_options, checker_from, policy_from
from cenote.cli.exit_status import ExitStatus
from cenote.runtime.remote.address import destination
from cenote_security.errors import UsageError
from cenote_security.extras import importing
from cenote_security.policy import SandboxPolicy

if TYPE_CHECKING:
    from cenote.connection import Platform
    from cenote.doors.open_runtimes import RuntimeSource

EPILOG = """Set it up in Claude Code with `claude mcp add cenote -- cenote mcp`; docs/doors.md has other clients.
Exit status: 0 the client has left, 2 wrong usage, 4 the platform, the jail or the extra is not available."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("mcp", help="runtimes for MCP clients, over stdio", epilog=EPILOG)
    add_source_options(parser)
    add_policy_options(parser)
    parser.set_defaults(handler=handle)


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Where a door's runtimes come from."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help="a folder or object store where states stay when the client leaves; the next one goes on with them",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="runtimes of a platform in place of this process's own (default: CENOTE_ADDRESS)",
    )
    parser.add_argument(
        "--durable", action="store_true", help="with --address: runtimes that survive any crash"
    )


def handle(arguments: argparse.Namespace) -> int:
    with importing("MCP", "mcp"):
        from cenote.doors.mcp_server import serve_stdio
    from cenote.doors.open_runtimes import OpenRuntimes

    source = source_from(arguments)
    # Standard output is the protocol's; logs go where the client shows them.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    asyncio.run(serve_stdio(OpenRuntimes(source)))
    return ExitStatus.OK


def source_from(arguments: argparse.Namespace, platform: Platform | None = None) -> RuntimeSource:
    """Where runtimes come from, as the options and CENOTE_ADDRESS say. Raises UsageError.

    platform: the one that they mean, for a caller of its own.
    """
    from cenote.connection import Platform
    from cenote.doors.open_runtimes import LocalSource, PlatformSource

    policy, checker = policy_from(arguments), checker_from(arguments)
    where = destination(arguments.address)
    if where is None:
        if arguments.durable:
            raise UsageError("--durable is for runtimes of a platform (--address); here, give a --store")
        return LocalSource(policy, checker, arguments.store)
    if arguments.store is not None:
        raise UsageError("a platform has a store of its own: leave --store or --address out")
    wanted = (
        None if policy == SandboxPolicy() else policy
    )  # a runtime that is there may allow more than the default
    return PlatformSource(platform or Platform(where), wanted, checker, durable=arguments.durable)
