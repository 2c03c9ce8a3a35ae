"""`cenote jupyter`: notebooks whose kernel is a jailed, recorded runtime, and notebooks as histories of runtimes."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cenote.cli.arguments import COMMAND, add_policy_options, checker_from, policy_from
from cenote.cli.exit_status import ExitStatus
from cenote.cli.local.mcp import add_source_options, source_from
from cenote.runtime.remote.address import destination
from cenote.terminal.screen import Screen, counted
from cenote_security.errors import UsageError
from cenote_security.extras import importing
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote.harness import ImportedNotebook
    from cenote.runtime import PythonRuntime

_NAME = re.compile(r"[a-z0-9._-]{1,60}")

IMPORT_EPILOG = """The cells run in order, each is a step, and what they give is compared with what the notebook has
recorded. With --store the state stays, too, and with --address both are the platform's.
Exit status: 0 all cells have run, 1 a cell failed that was not meant to, 2 wrong usage, 4 the platform or the jail
is not available."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("jupyter", help="notebooks whose kernel is a runtime")
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    install = verbs.add_parser("install", help="let Jupyter offer a kernel of its own runtime")
    install.add_argument("--name", default="cenote", help="of the kernel, for Jupyter (default %(default)s)")
    attach = verbs.add_parser("attach", help="let Jupyter offer a kernel that joins a runtime of a platform")
    attach.add_argument("runtime", metavar="NAME")
    imported = verbs.add_parser(
        "import", help="run a notebook's cells as steps of a runtime", epilog=IMPORT_EPILOG
    )
    imported.add_argument("notebook", metavar="FILE", type=Path, help="a notebook (.ipynb)")
    imported.add_argument(
        "--runtime", metavar="NAME", help="that goes on with them, or is made (default: the file's name)"
    )
    imported.add_argument(
        "--history", metavar="PLACE", help="a file or the URL of a database where the steps stay"
    )
    imported.add_argument("--keep-going", action="store_true", help="do not stop at a cell that fails")
    kernel = verbs.add_parser("kernel", help="what Jupyter starts")
    kernel.add_argument("-f", dest="connection", required=True, metavar="FILE")
    kernel.add_argument("--runtime", default="notebook", metavar="NAME")
    handlers = {
        install: handle_install,
        attach: handle_attach,
        imported: handle_import,
        kernel: handle_kernel,
    }
    for verb, handler in handlers.items():
        add_source_options(verb)
        add_policy_options(verb)
        verb.set_defaults(handler=handler)
    for verb in (install, attach):
        verb.add_argument("--sys-prefix", action="store_true", help="for this environment, not for the user")


def handle_install(arguments: argparse.Namespace) -> int:
    source_from(arguments)  # so that wrong options are said now
    return _install(arguments, arguments.name, "Cenote", [])


def handle_attach(arguments: argparse.Namespace) -> int:
    from cenote.doors.open_runtimes import PlatformSource

    if not isinstance(source_from(arguments), PlatformSource):
        raise UsageError("only a platform's runtimes can be joined: give its --address")
    kernel = re.sub(r"[^a-z0-9._-]", "-", f"cenote-{arguments.runtime}".lower())[:60]
    return _install(arguments, kernel, f"Cenote: {arguments.runtime}", ["--runtime", arguments.runtime])


def _install(arguments: argparse.Namespace, name: str, shown: str, more: list[str]) -> int:
    with importing("Jupyter", "jupyter"):
        from jupyter_client.kernelspec import KernelSpecManager
    if not _NAME.fullmatch(name):
        raise UsageError(f"a kernel's name has small letters, digits, '-', '_' and '.', not {name!r:.100}")
    kernel = [sys.executable, "-m", "cenote.cli.main", "jupyter", "kernel", "-f", "{connection_file}"]
    spec = {
        "argv": [*kernel, *_again(arguments), *more],
        "display_name": shown,
        "language": "python",
        "interrupt_mode": "message",
    }
    with TemporaryDirectory() as folder:
        (Path(folder) / "kernel.json").write_text(json.dumps(spec, indent=1))
        prefix = sys.prefix if arguments.sys_prefix else None
        where = KernelSpecManager().install_kernel_spec(folder, name, user=prefix is None, prefix=prefix)
    Screen().line(f"Jupyter has the kernel {name!r} now: {where}")
    return ExitStatus.OK


def _again(arguments: argparse.Namespace) -> list[str]:
    """The options that say where the runtime comes from and what it may do, as they were given."""
    given = sys.argv[1:]
    own = {"jupyter", "install", "attach", "--sys-prefix", getattr(arguments, "runtime", None)}
    kept = list[str]()
    skip = False
    for word in given:
        if skip:
            skip = False
        elif word == "--name":
            skip = True
        elif word not in own and not word.startswith("--name="):
            kept.append(word)
    return kept


def handle_import(arguments: argparse.Namespace) -> int:
    from cenote.harness.notebook_import import import_notebook, read_notebook

    source_from(arguments)  # so that wrong options are said now
    read_notebook(arguments.notebook)  # and a file that is none, before there is a runtime
    name = arguments.runtime or arguments.notebook.stem
    with _runtime(arguments, name) as runtime:
        done = import_notebook(runtime, arguments.notebook, keep_going=arguments.keep_going)
    return _report(name, done, Screen())


def _runtime(arguments: argparse.Namespace, name: str) -> PythonRuntime:
    """One whose history stays. Raises UsageError where it would not."""
    from cenote.connection import Platform
    from cenote.runtime import PythonRuntime

    policy, checker = policy_from(arguments), checker_from(arguments)
    where = destination(arguments.address)
    if where is not None:
        if arguments.history is not None:
            raise UsageError("a platform keeps the history of its runtimes: leave --history or --address out")
        wanted = None if policy == SandboxPolicy() else policy
        return Platform(where).runtime(
            name, sandbox=wanted, security_checker=checker, durable=arguments.durable
        )
    if arguments.history is None:
        raise UsageError("give the history a place: --history FILE, or a platform with --address HOST:PORT")
    if arguments.store is None:
        return PythonRuntime(
            name=name,
            sandbox=policy,
            security_checker=checker,
            history=arguments.history,
            address="embedded",
        )
    return PythonRuntime.open(
        arguments.store, name, sandbox=policy, security_checker=checker, history=arguments.history
    )


def _report(name: str, done: ImportedNotebook, screen: Screen) -> int:
    steps = [cell.step for cell in done.cells]
    screen.line(
        f"{counted(len(steps), 'cell')} ran as steps {steps[0]} to {steps[-1]} of {name}"
        if steps
        else "the notebook has no code"
    )
    for cell in done.cells:
        if cell.error is not None:
            screen.line(printable(f"cell {cell.number} failed: {cell.error.type}: {cell.error.message}"))
    if done.different:
        numbers = ", ".join(map(str, done.different))
        screen.line(f"other than the notebook has recorded: cells {numbers}")
    if done.left:
        screen.line(f"{counted(len(done.left), 'cell')} did not run; --keep-going does not stop")
    failed = any(cell.error is not None and not cell.may_fail for cell in done.cells)
    return ExitStatus.FAILED if failed else ExitStatus.OK


def handle_kernel(arguments: argparse.Namespace) -> int:
    with importing("Jupyter", "jupyter"):
        from ipykernel.kernelapp import IPKernelApp

        from cenote.doors.jupyter_kernel import CenoteKernel
    from cenote.doors.open_runtimes import LocalSource, OpenRuntimes

    source = source_from(arguments)
    CenoteKernel.runtimes, CenoteKernel.asks = OpenRuntimes(source), isinstance(source, LocalSource)
    CenoteKernel.name = arguments.runtime
    IPKernelApp.launch_instance(kernel_class=CenoteKernel, argv=["-f", arguments.connection])
    return ExitStatus.OK
