"""`cenote runtime exec|run`: a cell in a runtime that stays, or a program beside its namespace.

Either's output is shown as it comes; the exit status is that of the cell or of the program.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from cenote.cli.arguments import positive_seconds
from cenote.cli.local.execute import report, source_of
from cenote.cli.platform.connection import add_address_option, attached_runtime, platform_destination
from cenote.runtime.remote.address import Destination
from cenote.terminal.screen import Screen
from cenote_security.errors import CenoteError, UsageError
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.execution.results import ExecutionResult, StreamName

if TYPE_CHECKING:
    from cenote.runtime.core.processes import ProcessResult
    from cenote.runtime.faces.process import Process


EXEC_EPILOG = """\
Exit status: 0 the code succeeded, 1 it failed, 2 wrong usage or no such runtime, 3 the platform refused
it (nothing ran), 4 the platform does not answer (nothing ran), 130 Ctrl-C,
143 SIGTERM or SIGHUP."""


def add_exec(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("exec", help="run code in a runtime", epilog=EXEC_EPILOG)
    parser.add_argument("name", metavar="NAME", help="a name, or an id")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", metavar="FILE", help="a Python file, or - for standard input")
    source.add_argument("-c", dest="code", metavar="CODE", help="the code itself")
    parser.add_argument("--save", metavar="DIR", type=Path, help="write displayed figures into this folder")
    parser.add_argument("--timeout", type=positive_seconds, metavar="SECONDS", help="limit for this cell")
    add_address_option(parser)
    parser.set_defaults(handler=run_cell)


def run_cell(arguments: argparse.Namespace) -> int:
    code = source_of(arguments)
    screen = Screen()
    try:
        where = platform_destination(arguments.address, wait=arguments.answer_wait)
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

    with attached_runtime(name, where) as runtime:
        return runtime.execute(code, timeout, on_output=show)


RUN_EPILOG = """\
Exit status: that of the program; 124 its time was over, 128 and the number of the signal that ended it;
otherwise as of `cenote runtime exec`."""

_TIME_OVER: Final = 124
_SIGNALLED: Final = 128
_KILLED: Final = 137
_PIECE: Final = 64 * 1024


def add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run", help="run a program beside a runtime's namespace, in the same jail", epilog=RUN_EPILOG
    )
    parser.add_argument("name", metavar="NAME", help="a name, or an id")
    parser.add_argument("-c", dest="text", metavar="TEXT", help="a text for the shell, instead of a program")
    parser.add_argument("-i", "--stdin", action="store_true", help="give it what comes on standard input")
    parser.add_argument(
        "--cwd", metavar="DIR", help="its folder in the jail (default: the working directory)"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="one more variable; may be repeated"
    )
    parser.add_argument(
        "--timeout", type=positive_seconds, metavar="SECONDS", help="limit for it and all that it starts"
    )
    add_address_option(parser)
    parser.usage = f"{parser.prog} [options] NAME (-- PROGRAM [ARGUMENT ...] | -c TEXT)"
    _keep_what_is_behind_dashes(parser)
    parser.set_defaults(handler=run_program)


def _keep_what_is_behind_dashes(parser: argparse.ArgumentParser) -> None:
    """Keeps the program's own arguments from being read as options of this command.

    argparse consumes all positional arguments at the first of them, and has none left for those after options.
    """
    whole = parser.parse_known_args

    def parse(
        arguments: Sequence[str] = (), namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        own = list(takewhile(lambda each: each != "--", arguments))
        found, unknown = whole(own, namespace)
        found.argv = list(arguments[len(own) + 1 :])
        return found, unknown

    setattr(parser, "parse_known_args", parse)  # noqa: B010  (mypy: a method is not assigned)


def run_program(arguments: argparse.Namespace) -> int:
    if (arguments.text is None) == (not arguments.argv):
        raise UsageError(
            "give a program, as in `cenote runtime run NAME -- ls -l`, or a text for the shell with -c"
        )
    command = arguments.argv if arguments.text is None else arguments.text
    where = platform_destination(arguments.address, wait=arguments.answer_wait)
    variables = dict(map(_variable, arguments.env))
    return _status(
        _run(arguments.name, command, where, variables, arguments.cwd, arguments.timeout, arguments.stdin)
    )


def _run(
    name: str,
    command: str | list[str],
    where: Destination,
    env: dict[str, str],
    cwd: str | None,
    timeout: float | None,
    has_input: bool,
) -> ProcessResult:
    """Its streams go to those of this process, byte by byte, as they come."""
    outs: dict[str, BinaryIO] = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    with (
        attached_runtime(name, where) as runtime,
        runtime.spawn(command, env=env, cwd=cwd, timeout=timeout) as process,
    ):
        if has_input:
            threading.Thread(target=_pass_input, args=(process,), daemon=True).start()
        else:
            process.close_stdin()
        for stream, data in process:
            outs[stream].write(data)
            outs[stream].flush()
        return process.wait()


def _pass_input(process: Process) -> None:
    with suppress(CenoteError):  # it takes no more
        while data := os.read(sys.stdin.fileno(), _PIECE):
            process.send_input(data)
        process.close_stdin()


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"a variable is NAME=VALUE, not {text!r}")
    return name, value


def _status(result: ProcessResult) -> int:
    if result.exit_code is not None:
        return result.exit_code
    if result.timed_out:
        return _TIME_OVER
    how, _, number = (result.killed_by or "").partition(" ")
    return _SIGNALLED + int(number) if how == "signal" and number.isdecimal() else _KILLED
