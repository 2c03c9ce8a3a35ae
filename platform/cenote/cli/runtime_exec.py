"""`cenote runtime exec`: a cell in a runtime that stays, its output as it comes, its ending as an exit status."""

from __future__ import annotations

import argparse
from pathlib import Path

from cenote.cli.attached import attached
from cenote.cli.execute import read_source, report
from cenote.cli.platform_line import add_address_option, meant
from cenote.cli.policy_options import positive_seconds
from cenote.runtime.remote.address import Destination
from cenote.terminal.screen import Screen
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.results import ExecutionResult, StreamName

EPILOG = """Exit status: 0 the code succeeded, 1 it failed, 2 wrong usage or no such runtime, 3 the platform refused
it (nothing ran), 4 the platform does not answer (nothing ran), 130 Ctrl-C,
143 SIGTERM or SIGHUP."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("exec", help="run code in a runtime", epilog=EPILOG)
    parser.add_argument("name", metavar="NAME", help="a name, or an id")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", metavar="FILE", help="a Python file, or - for standard input")
    source.add_argument("-c", dest="code", metavar="CODE", help="the code itself")
    parser.add_argument("--save", metavar="DIR", type=Path, help="write displayed figures into this folder")
    parser.add_argument("--timeout", type=positive_seconds, metavar="SECONDS", help="limit for this cell")
    add_address_option(parser)
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    code = arguments.code if arguments.code is not None else read_source(arguments.file)
    screen = Screen()
    try:
        where = meant(arguments.address, wait=arguments.answer_wait)
        result = execute(arguments.name, code, arguments.timeout, where, screen)
    except NotDurableError as error:
        if isinstance(error.outcome, ExecutionResult):  # it was done: what it gave is nowhere else
            report(error.outcome, arguments.save, screen)
        raise
    return report(result, arguments.save, screen)


def execute(
    name: str, code: str, timeout: float | None, where: Destination, screen: Screen
) -> ExecutionResult:
    """Runs a cell in a runtime that is there. Raises UnknownRuntimeError when it is not."""

    def show(stream: StreamName, text: str) -> None:
        (screen.write if stream == "stdout" else screen.write_error)(text)

    with attached(name, where) as runtime:
        return runtime.execute(code, timeout, on_output=show)
