"""`cenote status`: whether a platform answers, who we are there, and what there is."""

from __future__ import annotations

import argparse
import json
from typing import Any

from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform_line import add_address_option, meant, platform_line
from cenote.runtime.remote.address import Destination
from cenote.terminal.screen import BOLD, GREEN, Screen

EPILOG = "Exit status: 0 the platform answers, 3 it refuses the token, 4 none answers."


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "status", help="whether a platform answers, and what there is", epilog=EPILOG
    )
    add_address_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    screen = Screen()
    found = status(meant(arguments.address))
    if arguments.json:
        screen.line(json.dumps(found, indent=2))
    else:
        show(found, screen)
    return ExitStatus.OK


def status(where: Destination) -> dict[str, Any]:
    """What the platform says of itself, as plain data. Raises what it refuses with, UnavailableError."""
    with platform_line(where) as line:
        described = line.describe()
    return {
        "address": where.address,
        "tls": bool(where.authority),
        "software": described.software,
        "tenant": described.tenant,
        "scopes": list(described.scopes),
        "nodes": [
            {
                "id": node.id,
                "address": node.address,
                "actors": node.actors,
                "runtimes": node.runtimes,
                "references": node.references,
                "reference_bytes": node.reference_bytes,
                "silent": node.silent,
            }
            for node in described.nodes
        ],
    }


def show(found: dict[str, Any], screen: Screen) -> None:
    screen.line(f"{found['software']} at {found['address']}{' (TLS)' if found['tls'] else ''}", BOLD, GREEN)
    screen.line(f"tenant     {found['tenant']}")
    screen.line(f"scopes     {' '.join(found['scopes'])}")
    for node in found["nodes"]:
        screen.line(f"node       {node['id']} {_state(node)}")


def _state(node: dict[str, Any]) -> str:
    if node["silent"]:
        return "does not answer now"
    return (
        f"at {node['address']}: {node['runtimes']} runtimes, {node['references']} shared "
        f"values ({node['reference_bytes']} bytes)"
    )
