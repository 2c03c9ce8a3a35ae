"""The options that say what a jail may do, the same for every command that makes one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cenote.cli.option_flags import add_flags, given
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy

if TYPE_CHECKING:
    from cenote.security import SecurityChecker


def add_policy_options(parser: argparse.ArgumentParser, *, rules: bool = True) -> None:
    """rules: with the choice of rules, for commands that run code."""
    group = parser.add_argument_group("jail")
    add_flags(group, SandboxPolicy)
    group.add_argument(
        "--allow",
        action="append",
        metavar="NAME[:PORT]",
        help='a name that the code may reach, such as "pypi.org" or "*.example.com:8443"; may be repeated',
    )
    if not rules:
        return
    group.add_argument(
        "--rules",
        default="default",
        choices=["default", "strict", "off"],
        help="what is refused before it runs; the jail holds in any case",
    )


def positive_seconds(text: str) -> float:
    """For argparse. Raises ArgumentTypeError unless `text` is a finite number above zero."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"not a number of seconds above zero: {text!r}")
    return seconds


def policy_from(arguments: argparse.Namespace, preload: Sequence[str] | None = None) -> SandboxPolicy:
    """The policy that the options ask for. Raises UsageError for a size, a limit or a name that makes no sense."""
    defaults = SandboxPolicy()
    return SandboxPolicy(
        **given(arguments, SandboxPolicy),
        network=Allow(arguments.allow) if arguments.allow else "none",
        preload=defaults.preload if preload is None else preload,
    )


def checker_from(arguments: argparse.Namespace) -> SecurityChecker | None:
    """The rules that the options ask for; None for `off`."""
    from cenote.security import SecurityChecker, default_rules, strict_rules

    if arguments.rules == "off":
        return None
    installs = arguments.allow is not None
    return SecurityChecker(
        strict_rules() if arguments.rules == "strict" else default_rules(installs=installs)
    )
