"""Exceptions as plain data: a class named by a jail is never raised, nor even looked up, outside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cenote_security.values import expect
from cenote_security.values.node import Foreign, Immutable, Kind, Node, Parts
from cenote_security.values.shapes import class_name

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

_LONGEST_MESSAGE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionRecord:
    """What an exception object becomes when it leaves its jail: a name and a text, nothing to raise.

    type: qualified class name, without `builtins.`. message: its text, cut at 10,000 characters.
    """

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def write(_encoder: Encoder, value: Foreign) -> Node:
    return ["exception", [class_name(type(value))[: expect.MAX_NAME], str(value)[:_LONGEST_MESSAGE]]]


def _build(parts: Parts) -> ExceptionRecord:
    name, message = expect.items(parts.meta, 2)
    return ExceptionRecord(type=expect.text(name), message=expect.text(message, _LONGEST_MESSAGE))


KINDS: dict[str, Kind] = {"exception": Immutable(build=_build, runs=0)}
