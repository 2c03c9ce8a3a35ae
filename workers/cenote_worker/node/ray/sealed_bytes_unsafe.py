"""Bytes on their way between two nodes, through Ray's object store, copied as seldom as can be."""

from __future__ import annotations

from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any


@dataclass(frozen=True, slots=True)
class SealedBytes:
    """Out of band where it is pickled, so that Ray copies the bytes once; nothing in them is ever opened."""

    view: memoryview

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return SealedBytes, (PickleBuffer(self.view),)
