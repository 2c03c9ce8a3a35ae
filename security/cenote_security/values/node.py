"""The vocabulary of the encoding: what a header is made of, and how one kind of node is rebuilt.

A header is JSON text: `[version, child, [node, ...]]`.

* A *child* is an inline scalar (null, true, false, a number, a string) or `[i]`, a reference to node i. References
  make the table flat: sharing and cycles need nothing more, and no depth of nesting is depth of JSON.
* A *node* is `[tag, meta, run, ...]`: meta is data of that kind of node and holds no reference.
* A *run* is a list of children, or `{"q": [offset, length]}` / `{"d": [offset, length]}`: 64-bit integers or
  floats, little-endian, in the region of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder
    from cenote_security.values.source import Source

VERSION = 1

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""Parsed JSON. The decoder's first step is to know nothing more than this."""

Foreign = Any
"""An object of an optional library (numpy, pandas, pyarrow, pydantic), which may not be installed: mypy sees no
class here, and neither does the code before the import inside the function that uses it."""

Node = list[Any]
"""A node while it is written. Its elements are JSON, and references whose number is not known yet."""

Runs = list[list[object]]

References = Sequence[Sequence[int]]
"""Per run, the nodes that it refers to."""

Write = Callable[["Encoder", Foreign], Node]
"""Turns an object of exactly one class into a node."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a node is rebuilt from. (Not frozen only because a frozen one takes three times as long to make.)

    source: buffers, classes, limits. meta: as a jail wrote it. runs: the children; empty for shells.
    """

    source: Source
    meta: Json
    runs: Runs


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnyKind:
    """What the decoder does for a kind of node before its object is built or filled.

    runs: how many runs such a node has.
    hashed: positions of the runs whose elements get hashed; that work is bounded first.
    walked: positions of the runs whose elements are visited to the bottom (validated, say); likewise.
    whole: children must be complete, not merely exist, because building looks into them or copies them.
        A value cannot refer to itself through such a node.
    frail: C frees such an object by recursion without a check, so how deep it holds others is bounded.
        Only together with `whole`: the depth of what is incomplete is not known.
    """

    runs: int = 1
    hashed: tuple[int, ...] = ()
    walked: tuple[int, ...] = ()
    whole: bool = False
    frail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Immutable(_AnyKind):
    """A kind of node whose object exists only when all its children do."""

    build: Callable[[Parts], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutable(_AnyKind):
    """A kind of node whose object is made empty first and filled later, so that it can be part of a cycle."""

    shell: Callable[[Parts], object]
    fill: Callable[[Foreign, Parts], None]


Kind = Immutable | Mutable
