"""Bounds the work that hashing, comparing and walking hostile values takes.

Tuples do not cache their hash and share freely: forty of them, each holding the one before twice, hash in 2**40
steps. Numbers and tuples of numbers have hashes that anybody can compute: a million keys with one hash make a
dict take 10**12 comparisons. Both are counted here before they happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cenote_security.values import expect
from cenote_security.values.limits import Limits
from cenote_security.values.node import Json, References, Runs

_TEXT_PER_STEP = 16  # hexadecimal digits, or characters, that cost about as much as one child


class Weights:
    """Per node: how many steps a walk to the bottom of it takes, and how deep it goes."""

    def __init__(self, count: int, limits: Limits) -> None:
        self._steps = [1] * count
        self._depths = [1] * count
        self._left = limits.walk
        self._ceiling = limits.walk + 1  # beyond it nothing is allowed, so nothing needs counting
        self._deepest = limits.depth

    def record_leaf(self, index: int, meta: Json, runs: Runs) -> None:
        """Note a completed node that has no references, or that no walk goes through."""
        own = len(meta) // _TEXT_PER_STEP if type(meta) is str else 0
        self._steps[index] = 1 + own + sum(map(len, runs))

    def record(self, index: int, meta: Json, runs: Runs, references: References) -> None:
        """Note a completed node."""
        self.record_leaf(index, meta, runs)
        children = [r for run in references for r in run]
        steps = self._steps[index] + sum([self._steps[r] for r in children])
        self._steps[index] = min(steps, self._ceiling)
        self._depths[index] = 1 + max([self._depths[r] for r in children])

    def record_unknown(self, index: int) -> None:
        """Note a node in a cycle. It can be neither walked nor hashed: nobody knows for how long."""
        self._steps[index] = self._ceiling
        self._depths[index] = self._ceiling

    def spend_walk(self, run: list[object], references: Sequence[int]) -> None:
        """Allow one walk over these children, to the bottom. Raises MalformedValueError when it is too much."""
        self._spend(len(run) + sum([self._steps[r] for r in references]))

    def spend_hashing(self, run: list[object], references: Sequence[int]) -> None:
        """Allow these children to become keys of one dict or set. Hashes them.

        Raises MalformedValueError when that takes too long, nests too deep, or the hashes collide too often.
        """
        self.spend_walk(run, references)
        if not references:
            return  # inline scalars: text is hashed with a secret, numbers collide a hundred times at most
        self.check_depth(references)
        self._spend(_comparisons(run) * max([self._steps[r] for r in references]))

    def check_depth(self, references: Sequence[int]) -> None:
        if max([self._depths[r] for r in references], default=0) > self._deepest:
            expect.malformed(
                f"a key, an array of objects or a defaultdict nests more than {self._deepest} deep"
            )

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            expect.malformed("it takes too many steps to rebuild")


def _comparisons(keys: list[object]) -> int:
    """How many pairs of keys have equal hashes."""
    hashes = Counter(map(hash, keys))
    if len(hashes) == len(keys):
        return 0
    return sum(count * count for count in hashes.values()) - len(keys)
