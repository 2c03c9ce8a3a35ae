"""How commands read their arguments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from cenote.cli.exit_status import ExitStatus
from cenote_security.printable import printable

COMMAND: Final = "COMMAND"
"""What stands for one in a usage."""


class Parser(argparse.ArgumentParser):
    """Whoever meets what it does not know says so, with its own usage: argparse leaves it to the outermost parser, of
    which nobody asked anything. Parsers of commands are of their parent's class.
    """

    def parse_known_args(  # type: ignore[override]  # there it is overloaded
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Whoever names no command is told which there are."""
        if not message.endswith(f"required: {COMMAND}"):
            super().error(printable(message, lines=True))
        self.print_help(sys.stderr)
        self.exit(ExitStatus.USAGE, f"\n{self.prog}: error: name one of these commands\n")
