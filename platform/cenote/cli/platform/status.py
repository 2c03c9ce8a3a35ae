"""`cenote status`: whether a platform answers and can be used, who we are there, and what there is."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.connection import add_address_option, platform_connection, platform_destination
from cenote.runtime.remote.address import Destination
from cenote.terminal.screen import BOLD, GREEN, RED, YELLOW, Screen, counted
from cenote_security.printable import shown_size

if TYPE_CHECKING:
    from cenote_proto.v1.platform_pb2 import HealthReport

EPILOG = """Exit status: 0 the platform answers; with --live: it is alive; with --ready: it can be used. 1 with
--ready: it is alive and cannot be used now, for the causes that are printed. 3 it refuses the token, which --live and
--ready do not look at. 4 none answers."""

HEALTH_SECONDS: Final = 7.0
"""For an answer to a health check, which with the start of this command is less than probes wait. The gateway gives
its own checks four."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "status", help="whether a platform answers and can be used, and what there is", epilog=EPILOG
    )
    add_address_option(parser)
    parser.set_defaults(answer_wait=0.0)
    health = parser.add_mutually_exclusive_group()
    health.add_argument(
        "--live",
        action="store_true",
        help="only whether the gateway is alive: for probes that start it again. Takes no token",
    )
    health.add_argument(
        "--ready",
        action="store_true",
        help="only whether the platform can be used, and why not: its disk, records, store, machines and "
        "certificates. Takes no token",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    screen = Screen()
    if arguments.live or arguments.ready:
        return _probed(arguments, screen)
    found = status(platform_destination(arguments.address, wait=arguments.answer_wait or 0.0))
    if arguments.json:
        screen.line(json.dumps(found, indent=2))
    else:
        show(found, screen)
    return ExitStatus.OK


def _probed(arguments: argparse.Namespace, screen: Screen) -> ExitStatus:
    """What health checks ask. Without a token: one that was revoked says nothing of the platform."""
    with platform_connection(
        platform_destination(arguments.address, token="", wait=arguments.answer_wait or 0.0)
    ) as line:
        if arguments.live:
            live = line.alive(HEALTH_SECONDS)
            screen.line(json.dumps({"live": live}) if arguments.json else "alive" if live else "ending")
            return ExitStatus.OK if live else ExitStatus.FAILED
        report = line.health(HEALTH_SECONDS)
    if arguments.json:
        screen.line(json.dumps(_health(report), indent=2))
    else:
        _show_health(_health(report), screen)
    return ExitStatus.OK if report.ready else ExitStatus.FAILED


def status(where: Destination) -> dict[str, Any]:
    """What the platform says of itself, as plain data. Raises what it refuses with, UnavailableError."""
    with platform_connection(where) as line:
        described = line.describe()
        health = line.health(HEALTH_SECONDS)
    return {
        "address": where.address,
        "tls": bool(where.authority),
        "software": described.software,
        "tenant": described.tenant,
        "scopes": list(described.scopes),
        **_health(health),
        "nodes": [
            {
                "id": node.id,
                "address": node.address,
                "actors": node.actors,
                "runtimes": node.runtimes,
                "references": node.references,
                "reference_bytes": node.reference_bytes,
                "silent": node.silent,
                "draining": node.draining,
            }
            for node in described.nodes
        ],
    }


def _health(report: HealthReport) -> dict[str, Any]:
    causes = [
        {"subject": cause.subject, "text": cause.text, "warning": cause.warning} for cause in report.causes
    ]
    return {"ready": report.ready, "causes": causes}


def show(found: dict[str, Any], screen: Screen) -> None:
    screen.line(f"{found['software']} at {found['address']}{' (TLS)' if found['tls'] else ''}", BOLD, GREEN)
    screen.line(f"tenant     {found['tenant']}")
    screen.line(f"scopes     {' '.join(found['scopes'])}")
    for node in found["nodes"]:
        screen.line(f"node       {node['id']} {_state(node)}")
    if found["causes"]:
        _show_health(found, screen)


def _show_health(found: dict[str, Any], screen: Screen) -> None:
    screen.line("ready" if found["ready"] else "not ready", BOLD, GREEN if found["ready"] else RED)
    for cause in found["causes"]:
        kind = "warning: " if cause["warning"] else ""
        screen.line(f"  {kind}{cause['subject']}: {cause['text']}", YELLOW if cause["warning"] else RED)


def _state(node: dict[str, Any]) -> str:
    if node["silent"]:
        return "does not answer now"
    size = f" ({shown_size(node['reference_bytes'])})" if node["references"] else ""
    values = counted(node["references"], "shared value")
    drained = ", is drained" if node["draining"] else ""
    return f"at {node['address']}: {counted(node['runtimes'], 'runtime')}, {values}{size}{drained}"
