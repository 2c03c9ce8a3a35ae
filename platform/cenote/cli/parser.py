"""How commands read their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


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
