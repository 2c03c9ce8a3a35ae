"""`cenote exec`: one piece of code in a fresh jail, its output as it comes, its ending as an exit status.

What a cell displays is saved as files: a figure has no place in a terminal.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cenote.cli.arguments import add_policy_options, checker_from, policy_from
from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import Screen
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.execution.results import ExecutionResult, MimeBundle, StreamName

SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg"}


def save_displayed(outputs: Sequence[MimeBundle], folder: Path | None, screen: Screen) -> list[Path]:
    """Writes the images among `outputs` into `folder` as `figure-1.png` and so on, and says where they are.

    Without a folder it says what could be saved. Raises UsageError when the folder cannot be written.
    """
    images = [(mime, bundle[mime]) for bundle in outputs for mime in SUFFIXES if mime in bundle]
    if folder is None:
        for mime, data in images:
            screen.note(f"[{mime}, {len(data):,} bytes; --save DIR keeps it]")
        return []
    paths = [folder / f"figure-{number}{SUFFIXES[mime]}" for number, (mime, _) in enumerate(images, 1)]
    for path, (_, data) in zip(paths, images, strict=True):
        _write(path, data)
        screen.note(f"[saved {path}]")
    return paths


def _write(path: Path, data: str | bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


EPILOG = """Exit status: 0 the code succeeded, 1 it failed, 2 wrong usage, 3 a rule or policy refused it
(nothing ran), 4 this machine cannot give the isolation asked for (nothing ran), 130 Ctrl-C,
143 SIGTERM or SIGHUP."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("exec", help="run code in a jail", epilog=EPILOG)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", metavar="FILE", help="a Python file, or - for standard input")
    source.add_argument("-c", dest="code", metavar="CODE", help="the code itself")
    parser.add_argument("--save", metavar="DIR", type=Path, help="write displayed figures into this folder")
    add_policy_options(parser)
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    code = source_of(arguments)
    screen = Screen()
    screen.progress("starting a jail")
    result = execute(code, arguments, screen)
    return report(result, arguments.save, screen)


def source_of(arguments: argparse.Namespace) -> str:
    """The code of `-c`; or the text of a file, or of standard input for `-`. Raises UsageError if it is none."""
    name = arguments.file if arguments.code is None else "the code of -c"
    try:
        if arguments.code is not None:
            return os.fsencode(arguments.code).decode()  # the locale has decoded it, whatever it is
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})") from None


def execute(code: str, arguments: argparse.Namespace, screen: Screen) -> ExecutionResult:
    from cenote.runtime import PythonRuntime

    def show(stream: StreamName, text: str) -> None:
        (screen.write if stream == "stdout" else screen.write_error)(text)

    policy = policy_from(arguments, preload=preload_for(code))
    with PythonRuntime(sandbox=policy, security_checker=checker_from(arguments)) as runtime:
        return runtime.execute(code, on_output=show)


def preload_for(code: str) -> tuple[str, ...]:
    """The default preloads that `code` imports; other code need not wait a second for them."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    named = {
        alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    named |= {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    return tuple(name for name in SandboxPolicy().preload if name in named)


def report(result: ExecutionResult, folder: Path | None, screen: Screen) -> int:
    """Prints what the streams did not show: the value, displayed files, the error. Gives the exit status."""
    for text in (result.value, result.reply):
        if text is not None:
            screen.line(text)
    save_displayed(result.outputs, folder, screen)
    if result.truncated:
        screen.note("cenote: the output went over its limit (SandboxPolicy.output); its middle was dropped")
    if result.error is not None:
        screen.write_error(f"{result.error}\n")
        return ExitStatus.REFUSED if result.error.reason == "policy" else ExitStatus.FAILED
    return ExitStatus.OK if result.success else ExitStatus.FAILED
