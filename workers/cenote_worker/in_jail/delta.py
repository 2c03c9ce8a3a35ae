"""What a cell did to the names of a namespace, as one short line.

Compared are bindings, by identity: a value that was changed in place does not show. Ids are kept and not values,
since keeping the old values would double the memory of a cell that replaces a large one.
"""

from __future__ import annotations

from collections.abc import Mapping

from cenote_proto.scalars import utf8_text
from cenote_worker.in_jail.bounded import type_name
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.variables import describe_variable, is_user_variable

__builtins__ = BUILTINS

_SHOWN = 20

Bindings = dict[str, int]
"""Name to identity of its value, at one moment."""


def bindings(namespace: Mapping[str, object]) -> Bindings:
    """The state of a namespace to compare a later one with."""
    return {name: id(value) for name, value in list(namespace.items()) if type(name) is str}


def delta(before: Bindings, namespace: Mapping[str, object]) -> str:
    """`+ df DataFrame (344, 8); ~ n int; - tmp`: new, rebound and removed names. Empty when there are none."""
    changes = []
    for name, value in list(namespace.items()):
        if type(name) is str and before.get(name) != id(value) and is_user_variable(name, value):
            changes.append(f"{'~' if name in before else '+'} {utf8_text(name)} {_kind(value)}")
    changes.extend(f"- {utf8_text(name)}" for name in before if name not in namespace and name[:1] != "_")
    if len(changes) > _SHOWN:
        changes[_SHOWN:] = [f"... {len(changes) - _SHOWN} more"]
    return "; ".join(changes)


def _kind(value: object) -> str:
    shape = describe_variable("", value).shape
    return f"{type_name(type(value))} {shape}" if shape else type_name(type(value))
