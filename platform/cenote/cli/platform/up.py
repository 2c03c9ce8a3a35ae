"""`cenote up`: a platform on this machine, ready when the command returns. `cenote down` ends it."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cenote.cli.arguments import add_flags, given
from cenote.cli.exit_status import ExitStatus
from cenote.runtime.remote.address import ADDRESS, AUTHORITY, token_file
from cenote.terminal.screen import BOLD, Screen, let_go_of_stdout
from cenote_security.extras import require
from cenote_worker.wire.channels import ENVIRONMENT

if TYPE_CHECKING:
    from cenote.gateway.api.health import Condition
    from cenote.gateway.process.daemon_lock import Running
    from cenote.gateway.process.options import PlatformOptions
    from cenote.gateway.process.service_manager import ServiceManager

EPILOG = """Exit status: 0 the platform is ready, 2 wrong usage, 4 it cannot be had here, such as for a port that
is taken or a platform that runs already."""


DOWN_EPILOG = "Exit status: 0 no platform runs here any more, 4 one is being started or ended just now."

_FORCED = (
    "warning: the platform had been killed, or did not end in time; what it had left was ended in its place, "
    "its runtimes with it"
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("up", help="start a platform on this machine", epilog=EPILOG)
    from cenote.gateway.process.options import PlatformOptions

    add_flags(parser, PlatformOptions)
    parser.add_argument(
        "--database",
        metavar="URL",
        help="where the platform's records go: a PostgreSQL database, which is remembered; may be in CENOTE_DATABASE "
        "as well (default: a file of this machine)",
    )
    parser.add_argument("--foreground", action="store_true", help="stay, and end with SIGTERM or Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=handle)
    ending = commands.add_parser("down", help="end the platform on this machine", epilog=DOWN_EPILOG)
    ending.add_argument("--json", action="store_true", help="print one JSON object")
    ending.set_defaults(handler=end)


def handle(arguments: argparse.Namespace) -> int:
    screen = Screen()
    options = options_from(arguments)
    require("the platform", "platform", "grpc", *(() if options.without_ray else ("ray",)))
    _keep_database(options, arguments.database)
    if arguments.foreground:
        screen.progress("starting the platform")
        os.environ.update({**ENVIRONMENT, **os.environ})
        from cenote.gateway.process import logs
        from cenote.gateway.process.platform import serve  # and with it gRPC
        from cenote.gateway.process.service_manager import ServiceManager

        if options.log_json:
            logs.set_up(logging.INFO, as_json=True)
        manager = ServiceManager.of_this_process()
        serve(options, _Foreground(manager, lambda running: show(running, screen, as_json=arguments.json)))
    else:
        from cenote.gateway.process.launch import start_platform

        with screen.busy("starting the platform") as going_on:
            running = start_platform(options, lambda: going_on("ending what was begun"))
        show(running, screen, as_json=arguments.json)
    return ExitStatus.OK


class _Foreground:
    """The Announcer of a platform in this process: to people, and to a service manager if there is one."""

    def __init__(self, manager: ServiceManager, shown: Callable[[Running], None]) -> None:
        self._manager = manager
        self._shown = shown
        self.beat, self.ending = manager.beat, manager.ending

    def condition(self, condition: Condition) -> None:
        self._manager.status(str(condition))

    def ready(self, running: Running) -> None:
        try:
            self._shown(running)
        except (
            OSError
        ):  # such as `| head -1`: no failure of the platform, which would leave its cluster behind
            let_go_of_stdout()
        self._manager.ready()


def _keep_database(options: PlatformOptions, given: str | None) -> None:
    """What is in the environment is not handed on: others of the platform's processes need not have it."""
    from cenote.gateway.store.database import DATABASE, keep_database_url

    found = os.environ.pop(DATABASE, None)
    if url := given or found:
        keep_database_url(options.state, url)


def options_from(arguments: argparse.Namespace) -> PlatformOptions:
    """Raises UsageError."""
    from cenote.gateway.process.options import PlatformOptions
    from cenote.gateway.store.state_folder import state_folder
    from cenote.gateway.values.bounds import PRELOADS

    told = given(arguments, PlatformOptions)
    told["preloads"] = tuple(dict.fromkeys((*PRELOADS, *told.get("preloads", ()))))
    told["store"] = _store(told.get("store", ""))
    for file in {"certificate", "key"} & told.keys():
        told[file] = told[file].resolve()
    return PlatformOptions(state=state_folder(), **told)


def _store(given: str) -> str:
    """A folder is meant from here, not from where the platform's process runs."""
    return given if not given or "://" in given else str(Path(given).resolve())


def show(running: Running, screen: Screen, *, as_json: bool) -> None:
    """Where it listens, and how to connect."""
    if as_json:
        screen.line(json.dumps(asdict(running) | {"token_file": str(token_file())}, indent=2))
        return
    screen.line(f"the platform listens at {running.address} (pid {running.pid})", BOLD)
    screen.line(f"  export {ADDRESS}={running.address}")
    if running.authority:
        screen.line(f"  export {AUTHORITY}={running.authority}")
    if running.http:
        screen.line(f"browsers, and clients of HTTP, E2B and MCP, find it at {running.http}")
    if running.elsewhere:
        screen.line(f"other machines reach it at {running.elsewhere}")
    screen.line(f"token in {token_file()}; `cenote status` shows the platform, `cenote down` ends it")


def end(arguments: argparse.Namespace) -> int:
    from cenote.gateway.process.launch import stop_platform
    from cenote.gateway.store.state_folder import state_folder

    screen = Screen()
    with screen.busy("ending the platform"):
        ending = stop_platform(state_folder())
    running = ending.platform
    if ending.forced:
        screen.note(_FORCED)
    if arguments.json:
        told = {
            "ended": running is not None,
            "pid": running.pid if running else None,
            "forced": ending.forced,
        }
        screen.line(json.dumps(told))
    elif running is None:
        screen.line("no platform runs here")
    else:
        where = f"at {running.address}" if running.address else "that was being started"
        screen.line(f"the platform {where} (pid {running.pid}) has ended")
    return ExitStatus.OK
