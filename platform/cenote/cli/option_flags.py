"""Flags of commands for options, made of their definitions: name, type, bounds, default and help."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from cenote_security.errors import UsageError
from cenote_security.options import Definition, Options, definitions

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
