"""The entry point: reads the command line, runs one command, turns every ending into an exit status.

SIGTERM and SIGHUP end a command as Ctrl-C does: what it has running elsewhere is ended, too.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final, NoReturn

from cenote.cli.arguments import COMMAND, Parser
from cenote.cli.exit_status import ExitStatus, status_of
from cenote.terminal.screen import let_go_of_stdout
from cenote_security.errors import CenoteError
from cenote_security.printable import printable

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Came instead of Ctrl-C: from `timeout`, a pipeline's runner, a service manager, a terminal that was closed."""


@contextmanager
def terminable() -> Iterator[None]:
    """Makes these signals raise Terminated, where they would have ended the process at once.

    A signal that the parent process set to be ignored, as `nohup` does, stays ignored.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    taken = [one for one in _SIGNALS if on_main_thread and signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, _terminate)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


Handler = Callable[[argparse.Namespace], int]


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Each command's module adds its own part and names its handler."""
    # Here, since it takes a while: what is imported with this module cannot be interrupted without a trace.
    from cenote.cli.local import completion, demo, doctor, env, execute, jupyter, mcp, run, serve, view
    from cenote.cli.platform import (
        audit,
        backup,
        job,
        logs,
        node,
        runtime,
        status,
        team,
        tenant,
        token,
        top,
        up,
    )

    parser = Parser(prog="cenote", description="Run model-written Python in jails that keep their state.")
    parser.add_argument("--version", action="version", version=f"cenote {version('cenote')}")
    commands = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    for command in (
        demo,
        run,
        execute,
        env,
        doctor,
        up,
        status,
        node,
        runtime,
        team,
        job,
        mcp,
        jupyter,
        serve,
        view,
        tenant,
        token,
        audit,
        backup,
        logs,
        top,
        completion,
    ):
        command.add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `cenote` with `argv` (the program's name left out; None is `sys.argv`) and gives its exit status."""
    _make_streams_writable()
    try:
        with terminable():
            arguments = build_parser().parse_args(argv)
            handler: Handler = arguments.handler
            status = handler(arguments)
            sys.stdout.flush()
            return status
    except Terminated:
        return _ended("terminated", ExitStatus.TERMINATED)
    except KeyboardInterrupt:
        return _ended("interrupted", ExitStatus.INTERRUPTED)
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:  # a full disk under stdout
        let_go_of_stdout()
        return _ended(f"error: {error}", ExitStatus.FAILED)
    except CenoteError as error:
        return _ended(f"error: {error}", status_of(error))
    except Exception as error:
        if os.environ.get("CENOTE_DEBUG"):  # a user gets one line, a trace only when asked for
            raise
        bug = f"internal error: {type(error).__name__}: {error}; this is a bug, CENOTE_DEBUG=1 shows where"
        return _ended(bug, ExitStatus.INTERNAL)


def _ended(message: str, status: ExitStatus) -> int:
    # On a terminal it may stand where progress was shown, and be shorter.
    end = "\x1b[K\n" if sys.stderr.isatty() else "\n"
    try:
        print(f"cenote: {printable(message, lines=True)}", end=end, file=sys.stderr)
    except BrokenPipeError:
        return _reader_gone()
    except OSError:  # its terminal was closed: only the status can still be reported
        let_go_of_stdout()
    return status


def _reader_gone() -> int:
    let_go_of_stdout()
    return ExitStatus.BROKEN_PIPE


def _make_streams_writable() -> None:
    """Lets a narrow encoding escape what it lacks, and replaces streams that the parent process has closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (for as long as we live)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
