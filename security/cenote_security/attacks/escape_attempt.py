"""One way out of a jail, as a table of them is made of: what it is known as, its code, how it should fail."""

from __future__ import annotations

import ast
import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cenote_security.attacks.inside_unsafe import REPORT, World

ByAttempt = Callable[[World], object]

DONE: Final = "done"
"""The outcome of an attempt that raised nothing. That alone is no breach: what it did may have stayed inside."""

_PREAMBLE: Final = (
    "import array, ctypes, errno, fcntl, mmap, os, resource, shutil, signal, socket, stat, struct, subprocess, sys\n"
    "import threading, time\n"
    "from cenote_security.attacks.inside_unsafe import *\n"
)


@dataclass(frozen=True, kw_only=True)
class EscapeAttempt:
    """name: of the function. reference: the technique or CVE. source: of the function.

    outcomes: what may become of it inside: names of errnos, signals or exceptions, or `done` where it is harmless.
    machine: the only kind of machine that it works on, empty for all.
    """

    name: str
    reference: str
    source: str
    outcomes: frozenset[str]
    machine: str = ""

    def cell(self, facts: Mapping[str, str | int]) -> str:
        """The code that tries it, with the facts about the world outside that the attacker gets."""
        return f"{_PREAMBLE}\n{self.source}\ntry_it({self.name}, World(**{dict(facts)!r}))\n"


class Family:
    """A table of attempts on one part of the system, filled by decorating their functions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._attempts: list[EscapeAttempt] = []

    def attempt(self, reference: str, *outcomes: str, machine: str = "") -> Callable[[ByAttempt], ByAttempt]:
        """Enters the function below into the table. See `EscapeAttempt`."""

        def enter(function: ByAttempt) -> ByAttempt:
            self._attempts.append(
                EscapeAttempt(
                    name=function.__name__,
                    reference=reference,
                    source=_source_without_decorator(function),
                    outcomes=frozenset(outcomes),
                    machine=machine,
                )
            )
            return function

        return enter

    @property
    def attempts(self) -> tuple[EscapeAttempt, ...]:
        """Those that this machine can try."""
        return tuple(one for one in self._attempts if one.machine in ("", os.uname().machine))


def _source_without_decorator(function: ByAttempt) -> str:
    definition = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    return ast.unparse(definition)


def outcome_of(stdout: str) -> str:
    """The outcome that an attempt reported; empty if none. Hostile text: only to be compared."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(REPORT):
            try:
                return str(json.loads(line.removeprefix(REPORT))["outcome"])
            except (ValueError, KeyError, TypeError):
                return ""
    return ""
