"""The public interface of Cenote as text: `python -m tests.house.formats.public_face` writes it next to this file.

`signatures.txt` has each public name, `command_line.txt` each command's arguments, `protos.txt` each field of a
message and each call. A change of one of these files is a change of the promised interface.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.house.layout.test_public_names import PUBLIC

from cenote.cli.main import build_parser
from cenote_proto.v1 import (
    checkpoint_pb2,
    failure_pb2,
    history_pb2,
    job_pb2,
    journal_pb2,
    platform_pb2,
    reference_pb2,
    runtime_pb2,
    team_pb2,
)

HERE: Final = Path(__file__).parent

PROTOS: Final = (
    checkpoint_pb2,
    failure_pb2,
    history_pb2,
    job_pb2,
    journal_pb2,
    platform_pb2,
    reference_pb2,
    runtime_pb2,
    team_pb2,
)
"""The protocols of clients and stores of other versions; a jail always has its host's version."""


def signatures() -> Iterator[str]:
    """A line for each public name, and for each public member of a public class."""
    for package in sorted(PUBLIC):
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            yield f"{package}.{name}{_signature(thing)}"
            if inspect.isclass(thing) and not issubclass(thing, BaseException):
                yield from sorted(f"{package}.{name}.{line}" for line in _members(thing))


def _members(cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in cls)
    for name in dir(cls):
        if name.startswith("_") or (issubclass(cls, enum.Enum) and name in cls.__members__):
            continue
        if getattr(cls, "__module__", "").startswith("cenote") and _is_ours(cls, name):
            yield name + _signature(getattr(cls, name))


def _is_ours(cls: type, name: str) -> bool:
    """Whether one of Cenote's classes defines it, not an external base."""
    return any(name in vars(base) for base in cls.__mro__ if base.__module__.startswith("cenote"))


def _signature(thing: object) -> str:
    if not callable(thing) or (isinstance(thing, type) and issubclass(thing, (enum.Enum, BaseException))):
        return ""
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    # Differences between processes: addresses, and the order of sets.
    return re.sub(r"(?<=frozenset\(\{)[^}]*", "...", re.sub(r" at 0x[0-9a-f]+", "", text))


def command_line() -> Iterator[str]:
    """A line for each argument of each command: its spellings, its type, its default, its help."""
    yield from _arguments("cenote", build_parser())


def _arguments(command: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in sorted(action.choices.items()):
                yield from _arguments(f"{command} {name}", child)
        elif not isinstance(action, argparse._HelpAction):
            spelled = ", ".join(action.option_strings) or action.dest
            facts = f"{action.metavar or action.dest} nargs={action.nargs} default={action.default!r}"
            yield f"{command} | {spelled} | {facts} | {action.help}"


def protos() -> Iterator[str]:
    """A line for each field of a message, each value of an enumeration and each call of a service."""
    for module in PROTOS:
        described = module.DESCRIPTOR
        for message in described.message_types_by_name.values():
            yield from _fields(message)
        for enumeration in described.enum_types_by_name.values():
            yield from (f"{enumeration.full_name}.{v.name} = {v.number}" for v in enumeration.values)
        for service in described.services_by_name.values():
            for call in service.methods:
                streams = (call.client_streaming, call.server_streaming)
                yield f"{call.full_name}({call.input_type.full_name}) -> {call.output_type.full_name} {streams}"


def _fields(message: object) -> Iterator[str]:
    for field in message.fields:  # type: ignore[attr-defined]
        of = field.message_type or field.enum_type
        kind = of.full_name if of else field.type
        yield f"{field.full_name} = {field.number}: {kind}{' repeated' if field.is_repeated else ''}"
    for enumeration in message.enum_types:  # type: ignore[attr-defined]
        yield from (f"{enumeration.full_name}.{v.name} = {v.number}" for v in enumeration.values)
    for nested in message.nested_types:  # type: ignore[attr-defined]
        yield from _fields(nested)


FACES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "signatures.txt": signatures,
    "command_line.txt": command_line,
    "protos.txt": protos,
}


if __name__ == "__main__":
    for file, lines in FACES.items():
        (HERE / file).write_text("".join(f"{line}\n" for line in lines()))
