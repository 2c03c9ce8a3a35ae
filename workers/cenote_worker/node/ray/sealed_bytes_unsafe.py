"""Bytes on their way between two nodes, through Ray's object store, with as few copies as possible."""

from __future__ import annotations

from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any


@dataclass(frozen=True, slots=True)
class SealedBytes:
    """Pickled out of band, so that Ray copies the bytes once; their content is never loaded."""

    view: memoryview

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return SealedBytes, (PickleBuffer(self.view),)
