"""`cenote jupyter`: notebooks whose kernel is a jailed, recorded runtime."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from cenote.cli.arguments import COMMAND, add_policy_options
from cenote.cli.exit_status import ExitStatus
from cenote.cli.local.mcp import add_source_options, source_from
from cenote.terminal.screen import Screen
from cenote_security.errors import UsageError
from cenote_security.extras import importing

_NAME = re.compile(r"[a-z0-9._-]{1,60}")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("jupyter", help="notebooks whose kernel is a runtime")
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    install = verbs.add_parser("install", help="let Jupyter offer a kernel of its own runtime")
    install.add_argument("--name", default="cenote", help="of the kernel, for Jupyter (default %(default)s)")
    attach = verbs.add_parser("attach", help="let Jupyter offer a kernel that joins a runtime of a platform")
    attach.add_argument("runtime", metavar="NAME")
    kernel = verbs.add_parser("kernel", help="what Jupyter starts")
    kernel.add_argument("-f", dest="connection", required=True, metavar="FILE")
    kernel.add_argument("--runtime", default="notebook", metavar="NAME")
    for verb, handler in ((install, handle_install), (attach, handle_attach), (kernel, handle_kernel)):
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
