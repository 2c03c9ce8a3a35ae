"""`cenote demo`: the main job on real data, offline unless a model is named."""

from __future__ import annotations

import argparse
from pathlib import Path

from cenote.cli.exit_status import ExitStatus
from cenote.terminal.screen import Screen


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("demo", help="agents at work on real data in jails; offline by default")
    parser.add_argument(
        "--model", metavar="MODEL", help="do the task with this model (any name LiteLLM knows)"
    )
    parser.add_argument("--output", metavar="DIR", type=Path, default=Path("demo-output"),
                        help="where figures go (default %(default)s)")  # fmt: skip
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    from cenote.demo.penguins import run_demo

    succeeded = run_demo(Screen(), model=arguments.model, folder=arguments.output)
    return ExitStatus.OK if succeeded else ExitStatus.FAILED
