"""`cenote env build|ls|rm`: environments whose packages jails have instead of their client's, of this machine or of a
platform.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cenote.cli.arguments import COMMAND
from cenote.cli.exit_status import ExitStatus
from cenote.connection import connect
from cenote.terminal.screen import Screen, counted
from cenote_security.environment import Environment
from cenote_security.errors import UsageError
from cenote_security.printable import shown_size

if TYPE_CHECKING:
    from cenote.environments import BuiltEnvironment
    from cenote.runtime.remote.environments import EnvironmentInfo

EPILOG = """`cenote exec --environment NAME` and SandboxPolicy(environment="NAME") use it.
Exit status: 0 built, or there already; 2 it cannot be used here; 4 its packages cannot be had."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "env", help="packages for jails: environments of this machine, or of a platform"
    )
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    _add_build(verbs.add_parser("build", help="build an environment, once", epilog=EPILOG))
    listing = verbs.add_parser("ls", help="list the environments, the latest first")
    _add_address(listing)
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    listing.set_defaults(handler=list_all)
    removing = verbs.add_parser("rm", help="remove environments that no process uses")
    removing.add_argument("environments", nargs="+", metavar="ENVIRONMENT", help="a name, or first digits")
    _add_address(removing)
    removing.set_defaults(handler=remove)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="those of the tenant on this platform (default: those of this machine)",
    )


def _add_build(parser: argparse.ArgumentParser) -> None:
    _add_address(parser)
    parser.add_argument("requirements", nargs="*", metavar="REQUIREMENT", help='such as "pandas==2.2.3"')
    parser.add_argument(
        "--lock",
        default="",
        metavar="FILE",
        help="instead: uv.lock, pylock.toml, or requirements with hashes",
    )
    parser.add_argument(
        "--path", default="", metavar="FOLDER", help="instead: a virtual environment that exists"
    )
    parser.add_argument("--name", metavar="NAME", help="what policies call it")
    parser.add_argument("--python", default="", metavar="VERSION", help="refuse unless jails here are of it")
    parser.add_argument(
        "--preload", action="append", metavar="MODULE", help="imported once for all jails; may be repeated"
    )
    parser.add_argument("--index-url", default="", metavar="URL", help="the package index that is asked")
    parser.add_argument(
        "--find-links", action="append", metavar="PLACE", help="a folder with wheels; may be repeated"
    )
    parser.add_argument(
        "--offline", action="store_true", help="ask no index; wheels are those of --find-links"
    )
    parser.add_argument(
        "--refresh", action="store_true", help="resolve again, to the newest versions that fit"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=build)


def build(arguments: argparse.Namespace) -> int:
    from cenote import environments

    wanted = Environment(
        arguments.requirements,
        lockfile=arguments.lock,
        path=arguments.path,
        python=arguments.python,
        preload=arguments.preload or (),
        index=arguments.index_url,
        find_links=arguments.find_links or (),
        offline=arguments.offline,
    )
    if arguments.address is not None:
        return _build_there(wanted, arguments)
    screen, kept = Screen(), environments.EnvironmentStore()
    if arguments.name is not None:
        kept.check_name(arguments.name)
    with screen.busy("building the environment") as going_on:
        show = going_on if sys.stderr.isatty() else screen.note
        built = environments.build(wanted, show, refresh=arguments.refresh, kept=kept)
    if arguments.name is not None:
        kept.name(arguments.name, built.digest)
    if arguments.json:
        screen.line(json.dumps(_facts(built, kept.names()), indent=2))
    else:
        screen.line(_line(built, kept.names()))
    return ExitStatus.OK


def _build_there(wanted: Environment, arguments: argparse.Namespace) -> int:
    if arguments.refresh:
        raise UsageError(
            "a platform resolves each name once; for newer versions build another name, without --refresh"
        )
    screen = Screen()
    with screen.busy("building the environment") as going_on:
        show = going_on if sys.stderr.isatty() else screen.note
        found = connect(arguments.address).environments.build(wanted, arguments.name or "", progress=show)
    screen.line(json.dumps(asdict(found), indent=2) if arguments.json else _line_there(found))
    return ExitStatus.OK


def _list_there(arguments: argparse.Namespace) -> int:
    screen, found = Screen(), connect(arguments.address).environments.list()
    if arguments.json:
        screen.line(json.dumps([asdict(each) for each in found], indent=2))
        return ExitStatus.OK
    for each in found:
        screen.line(_line_there(each))
    return ExitStatus.OK


def _line_there(found: EnvironmentInfo) -> str:
    if found.common:
        return f"{found.digest[:12]}  {found.name}  of the operator"
    if found.state != "ready":
        return f"{'-' * 12}  {found.name}  {found.state}: {found.error or found.progress}"
    return f"{found.digest[:12]}  {found.name}  {counted(len(found.packages), 'package')}  {shown_size(found.size)}"


def list_all(arguments: argparse.Namespace) -> int:
    if arguments.address is not None:
        return _list_there(arguments)
    from cenote.environments import EnvironmentStore

    screen, kept = Screen(), EnvironmentStore()
    found, names = kept.all(), kept.names()
    if arguments.json:
        in_use = ({"in_use": kept.is_held(each.digest)} for each in found)
        screen.line(
            json.dumps(
                [_facts(each, names) | used for each, used in zip(found, in_use, strict=True)], indent=2
            )
        )
        return ExitStatus.OK
    for each in found:
        screen.line(_line(each, names))
    return ExitStatus.OK


def remove(arguments: argparse.Namespace) -> int:
    screen = Screen()
    if arguments.address is not None:
        there = connect(arguments.address).environments
        for name in arguments.environments:
            there.remove(name)
            screen.line(f"removed {name}")
        return ExitStatus.OK
    from cenote.environments import EnvironmentStore

    kept = EnvironmentStore()
    for reference in arguments.environments:
        screen.line(f"removed {kept.remove(reference).digest[:12]}")
    return ExitStatus.OK


def _facts(built: BuiltEnvironment, names: Mapping[str, str]) -> dict[str, Any]:
    facts = asdict(built)
    del facts["lock"]  # a file of thousands of lines
    return {"names": _names(built, names), **facts}


def _names(built: BuiltEnvironment, names: Mapping[str, str]) -> list[str]:
    return [name for name, digest in names.items() if digest == built.digest]


def _line(built: BuiltEnvironment, names: Mapping[str, str]) -> str:
    called = ", ".join(_names(built, names)) or "-"
    return (
        f"{built.digest[:12]}  {called}  {counted(len(built.packages), 'package')}  {shown_size(built.size)}"
    )
