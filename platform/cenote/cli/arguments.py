"""How commands read their arguments.

Flags for options are made of the options' definitions: name, type, bounds, default and help. Those that say what a
jail may do are the same for every command that makes one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol

from cenote.cli.exit_status import ExitStatus
from cenote_security.errors import UsageError
from cenote_security.network import MAX_SECRET, Allow, Secret
from cenote_security.options import Definition, Options, definitions
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote.security import SecurityChecker


COMMAND: Final = "COMMAND"
"""Stands for a command in a usage text."""


class Parser(argparse.ArgumentParser):
    """Reports unknown arguments with the usage of the command that was given them: argparse leaves that to the
    outermost parser, with its usage. Parsers of commands are of their parent's class.
    """

    def parse_known_args(  # type: ignore[override]  # there it is overloaded
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Prints the help, which lists the commands, when no command is named."""
        if not message.endswith(f"required: {COMMAND}"):
            super().error(printable(message, lines=True))
        self.print_help(sys.stderr)
        self.exit(ExitStatus.USAGE, f"\n{self.prog}: error: name one of these commands\n")


_METAVARS: Final[Mapping[str, str]] = {"bytes": "SIZE", "seconds": "SECONDS"}
_DESTINATION: Final = "option_{}"


class Flags(Protocol):
    """A parser, or a group of one."""

    def add_argument(self, *names: str, **facts: Any) -> Any: ...


def add_flags(flags: Flags, kind: type[Options], *, but: Collection[str] = ()) -> None:
    """A flag for each option of the class that has one. but: flags that this command has no use for."""
    for known in _flagged(kind):
        if known.option.flag not in but:
            _add(flags, known)


def given(arguments: argparse.Namespace, kind: type[Options]) -> dict[str, Any]:
    """The options that were given, for the constructor of their class, or `replace`."""
    found = {
        known.name: getattr(arguments, _DESTINATION.format(known.name), None) for known in _flagged(kind)
    }
    return {name: value for name, value in found.items() if value is not None}


def _flagged(kind: type[Options]) -> list[Definition]:
    return [known for known in definitions(kind) if known.option.flag]


def _add(flags: Flags, known: Definition) -> None:
    facts: dict[str, Any] = {"dest": _DESTINATION.format(known.name), "default": None}
    if known.default is False:
        facts["action"] = "store_true"
    elif known.choices:
        facts["choices"] = known.choices
    else:
        facts |= {
            "type": _reading(known),
            "metavar": known.option.metavar or _METAVARS.get(known.option.unit, "N"),
        }
        if known.is_list:
            facts["action"] = "append"
    words = f"{known.option.help}{'; may be repeated' if known.is_list else ''}"
    words = " ".join(filter(None, (words, _default_of(known))))
    flags.add_argument(f"--{known.option.flag}", help=words.replace("%", "%%"), **facts)


def _default_of(known: Definition) -> str:
    if not known.default:
        return f"(default: {known.option.none})" if known.option.none else ""
    return "" if known.is_list else f"(default {known.default})"


def _reading(known: Definition) -> Callable[[str], Any]:
    """For argparse, which shows the text of an ArgumentTypeError."""

    def read(text: str) -> Any:
        try:
            value = value_of(known, text)
            return value if known.is_list else known.plain(value)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def value_of(known: Definition, text: str) -> Any:
    """The text as the option's type; as it is where it is none, so that the definition says what it is to be."""
    if known.is_size and text.isdecimal():
        return int(text)
    if known.is_size or Path in known.parts:
        return text if known.is_size else Path(text)
    try:
        if int in known.parts:
            return int(text)
        if float in known.parts:
            return float(text) * known.option.flag_scale
    except ValueError:
        return text
    return text


def add_policy_options(parser: argparse.ArgumentParser, *, rules: bool = True) -> None:
    """rules: with the choice of rules, for commands that run code."""
    group = parser.add_argument_group("jail")
    add_flags(group, SandboxPolicy)
    add_network_options(group)
    if not rules:
        return
    group.add_argument(
        "--rules",
        default="default",
        choices=["default", "strict", "off"],
        help="what is refused before it runs; the jail holds in any case",
    )


def add_network_options(flags: Flags) -> None:
    flags.add_argument(
        "--allow",
        action="append",
        metavar="NAME[:PORT]",
        help='a name that the code may reach, such as "pypi.org" or "*.example.com:8443"; may be repeated',
    )
    flags.add_argument(
        "--credential",
        action="append",
        metavar="HOST[:PORT]=env:NAME|file:PATH[,scheme=WORD][,header=NAME][,path=PATTERN]",
        help="a credential that requests to an allowed host get outside of the jail, from a variable or a file of "
        "yours, such as api.example.com=env:API_KEY,scheme=Bearer; may be repeated",
    )


def network_from(arguments: argparse.Namespace) -> Allow | Literal["none"]:
    """What code may reach. Raises UsageError, whose text has no secret."""
    given = dict[str, Secret]()
    for text in arguments.credential or ():
        host, secret = _credential(text)
        if host in given:
            raise UsageError(f"--credential names {host!r:.300} twice; a host has one credential")
        given[host] = secret
    if arguments.allow:
        return Allow(arguments.allow, credentials=given)
    if given:
        raise UsageError(f"--credential is for hosts that code may reach: add --allow {next(iter(given))}")
    return "none"


def _credential(text: str) -> tuple[str, Secret]:
    host, _, rest = text.partition("=")
    source, *more = rest.split(",")
    kind, _, name = source.partition(":")
    facts = [part.partition("=")[::2] for part in more]
    known = [(key, value) for key, value in facts if key in ("scheme", "header", "path") and value]
    # What is wrong may be a secret that was given in the place of its name: it is not repeated.
    if not host or not name or kind not in ("env", "file") or len(known) < len(facts):
        raise UsageError(
            "--credential is HOST[:PORT]=env:NAME or HOST[:PORT]=file:PATH, then ,scheme=WORD ,header=NAME "
            ",path=PATTERN as they are needed; it names where the secret is, and never has it"
        )
    value = _of_variable(name) if kind == "env" else _of_file(Path(name))
    options = dict(known)
    secret = Secret(f"{options['scheme']} {value}" if "scheme" in options else value)
    paths = tuple(value for key, value in known if key == "path")
    return host, replace(secret, header=options.get("header", secret.header), paths=paths or secret.paths)


def _of_variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise UsageError("--credential: the environment variable that it names is not set, or empty")
    return value


def _of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            value = file.read(MAX_SECRET + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError(f"--credential: {str(path)!r} cannot be read: {error.strerror}") from None
    if not value:
        raise UsageError(f"--credential: there is nothing in {str(path)!r}")
    return value


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
        network=network_from(arguments),
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
