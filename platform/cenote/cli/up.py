"""`cenote up`: a platform on this machine, ready when the command returns."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cenote.cli.exit_status import ExitStatus
from cenote.cli.policy_options import positive_seconds
from cenote.runtime.remote.address import ADDRESS, AUTHORITY, PORT, token_file
from cenote.terminal.screen import BOLD, Screen
from cenote_worker.wire.channels import ENVIRONMENT

if TYPE_CHECKING:
    from cenote.gateway.daemon_lock import Running
    from cenote.gateway.health import Condition
    from cenote.gateway.options import PlatformOptions
    from cenote.gateway.service_manager import ServiceManager

EPILOG = """Exit status: 0 the platform is ready, 2 wrong usage, 4 it cannot be had here, such as for a port that
is taken or a platform that runs already."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("up", help="start a platform on this machine", epilog=EPILOG)
    parser.add_argument("--port", type=int, default=PORT, help="default %(default)s; 0 for any that is free")
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen (default %(default)s; others take --tls)"
    )
    parser.add_argument("--ray-address", metavar="ADDRESS", help="of a Ray cluster to run on")
    parser.add_argument("--without-ray", action="store_true", help="one process; runtimes end when it does")
    parser.add_argument(
        "--relay", action="store_true", help="let clients reach everything through this one port"
    )
    parser.add_argument("--tls", action="store_true", help="with TLS, on the lines to machines too")
    parser.add_argument(
        "--tls-cert", metavar="FILE", type=Path, help="a certificate to use (default: our own)"
    )
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its key, without a password, mode 0600")
    parser.add_argument(
        "--preload",
        action="append",
        metavar="MODULE",
        help="what runtimes may have imported beforehand besides numpy and pandas; may be repeated",
    )
    parser.add_argument(
        "--shared-memory",
        metavar="SIZE",
        help='memory of a machine for shared values, such as "8GiB"; those beyond go to disk (default: half of it; '
        "4 GiB without Ray)",
    )
    parser.add_argument(
        "--model-endpoint",
        action="append",
        metavar="URL",
        help="a base URL that models of teams and jobs may be at, besides those of their providers; repeatable",
    )
    parser.add_argument(
        "--team-env",
        action="append",
        metavar="NAME",
        help="a variable, such as OPENAI_API_KEY, that processes of teams and jobs find; repeatable (default: none)",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        default="",
        help="where states of durable runtimes go: a folder, which all machines have, or any URL that fsspec knows "
        "(default: a folder of this machine)",
    )
    parser.add_argument(
        "--database",
        metavar="URL",
        help="where the platform's records go: a PostgreSQL database, which is remembered; may be in CENOTE_DATABASE "
        "as well (default: a file of this machine)",
    )
    parser.add_argument(
        "--hibernate-after",
        type=positive_seconds,
        metavar="SECONDS",
        help="have runtimes that nobody calls for so long sleep in the store, unless they are told otherwise "
        "(default: never)",
    )
    parser.add_argument(
        "--audit-days",
        type=positive_seconds,
        metavar="DAYS",
        help="keep entries of the audit log for so many days and remove older ones (default: for ever)",
    )
    parser.add_argument("--foreground", action="store_true", help="stay, and end with SIGTERM or Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    screen = Screen()
    options = options_from(arguments)
    _keep_database(options, arguments.database)
    screen.progress("starting the platform")
    if arguments.foreground:
        os.environ.update({**ENVIRONMENT, **os.environ})
        from cenote.gateway.platform import serve  # and with it gRPC
        from cenote.gateway.service_manager import ServiceManager

        manager = ServiceManager.of_this_process()
        serve(options, _Foreground(manager, lambda running: show(running, screen, as_json=arguments.json)))
    else:
        from cenote.gateway.launch import start_platform

        running = start_platform(options, lambda: screen.progress("ending what was begun"))
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
        self._shown(running)
        self._manager.ready()


def _keep_database(options: PlatformOptions, given: str | None) -> None:
    """What is in the environment is not handed on: others of the platform's processes need not have it."""
    from cenote.gateway.database_place import DATABASE, keep_database_url

    found = os.environ.pop(DATABASE, None)
    if url := given or found:
        keep_database_url(options.state, url)


def options_from(arguments: argparse.Namespace) -> PlatformOptions:
    """Raises UsageError."""
    from cenote.gateway.bounds import PRELOADS
    from cenote.gateway.options import PlatformOptions
    from cenote.gateway.state_folder import state_folder
    from cenote_security.size import parse_size

    return PlatformOptions(
        state=state_folder(),
        host=arguments.host,
        port=arguments.port,
        ray_address=arguments.ray_address,
        without_ray=arguments.without_ray,
        relay=arguments.relay,
        tls=arguments.tls,
        preloads=tuple(dict.fromkeys((*PRELOADS, *(arguments.preload or ())))),
        model_endpoints=tuple(arguments.model_endpoint or ()),
        team_environment=tuple(arguments.team_env or ()),
        store=_store(arguments.store),
        hibernate_after=arguments.hibernate_after or 0.0,
        audit_keep=(arguments.audit_days or 0.0) * 86_400,
        shared_memory=arguments.shared_memory and parse_size(arguments.shared_memory),
        certificate=arguments.tls_cert and arguments.tls_cert.resolve(),
        key=arguments.tls_key and arguments.tls_key.resolve(),
    )


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
    if running.elsewhere:
        screen.line(f"other machines reach it at {running.elsewhere}")
    screen.line(f"token in {token_file()}; `cenote status` shows the platform, `cenote down` ends it")
