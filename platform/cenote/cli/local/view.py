"""`cenote view`: the pages of a stored history, without its runtime or a platform."""

from __future__ import annotations

import argparse
from pathlib import Path

from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import Screen
from cenote_security.errors import UsageError
from cenote_security.extras import importing

EPILOG = """The address that is printed opens the pages once, in one browser. They change nothing: another process may
be writing the history, and what it adds is shown.
Exit status: 130 ended by Ctrl-C, 143 by SIGTERM, 2 wrong usage, 4 history, port or extra not available."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("view", help="a stored history in a browser", epilog=EPILOG)
    parser.add_argument(
        "places",
        nargs="+",
        metavar="HISTORY",
        help="what a runtime was given as `history` or `store`: a file, the URL of a database, a folder of either",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="where to listen on the loopback (default: any free port)"
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    with importing("HTTP", "http"):
        from cenote.doors.console.recorded import OneTimeCaller, Records, record_app
        from cenote.doors.http_server import listen, server, url_of
    for place in arguments.places:
        if "://" not in place and not Path(place).exists():
            raise UsageError(f"there is no {place!r:.300}: name a history, a store, or a folder of them")
    caller = OneTimeCaller(Records(arguments.places))
    host = "127.0.0.1"
    listening = listen(host, arguments.port)
    url = url_of("http", host, listening)
    Screen().line(f"open {url}/sign-in?once={caller.token}; it works once")
    server(record_app(caller)).run([listening])
    return ExitStatus.OK
