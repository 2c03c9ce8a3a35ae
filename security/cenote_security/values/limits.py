"""How large an encoded value may be, and how much work rebuilding one may cause."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one encoded value. Both sides check them; only the decoder's check protects anybody.

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
