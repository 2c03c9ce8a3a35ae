"""The vocabulary of the encoding: what a header is made of, how one kind of node is rebuilt, and how large it may be.

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
    from cenote_security.values.decoder import NodeSource
    from cenote_security.values.encoder import Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one encoded value. Both sides check them; only the decoder's check is a protection.

    header_bytes: JSON text. Rebuilding needs up to 25 times as much memory for lists, 75 times for empty deques.
    brackets: opening brackets in the header, counted before it is parsed: each may become a list.
    nodes: objects that are not inline scalars.
    region_bytes: buffers: arrays, long text, bytes.
    integer_digits: hexadecimal digits of one integer.
    item_bytes: size of one element of an array (a structure, a fixed-width string).
    empty_extent: product of the dimensions of an array that takes no bytes. Nothing else bounds them.
    walk: steps that hashing, comparing and validating may take in total. A tuple of shared tuples can be
        short to write and take 2**100 steps to hash.
    depth: nesting of what is hashed, and of what is freed, by recursion in C without a check: tuples used as
        keys; arrays of objects and defaultdicts. Nothing else has a limit of depth.
    """

    header_bytes: int = 64 * 2**20
    brackets: int = 6_000_000
    nodes: int = 1_500_000
    region_bytes: int = 64 * 2**30
    integer_digits: int = 2**18
    item_bytes: int = 16 * 2**20
    empty_extent: int = 2**20
    walk: int = 2**25
    depth: int = 100


DEFAULT_LIMITS = Limits()


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
class NodeParts:
    """What a node is rebuilt from. (Not frozen only because a frozen one takes three times as long to make.)

    source: buffers, classes, limits. meta: as a jail wrote it. runs: the children; empty for shells.
    """

    source: NodeSource
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

    build: Callable[[NodeParts], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutable(_AnyKind):
    """A kind of node whose object is made empty first and filled later, so that it can be part of a cycle."""

    shell: Callable[[NodeParts], object]
    fill: Callable[[Foreign, NodeParts], None]


Kind = Immutable | Mutable
