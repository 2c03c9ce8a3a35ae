"""The moved values: an array, bytes, a frame with a column of strings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Payload:
    """A kind of value as source code, so that a client and a jail can make the same one.

    item: bytes that one item takes; the code's `{items}` is replaced by their number, and the value
    is in `made`.
    """

    name: str
    item: int
    code: str

    def source(self, size: int) -> str:
        """A cell that makes `made` with about `size` bytes."""
        return self.code.replace("{items}", str(self.items(size)))

    def items(self, size: int) -> int:
        return size // self.item

    def value(self, size: int) -> object:
        """The value itself, made in this process."""
        namespace: dict[str, object] = {}
        exec(self.source(size), namespace)
        return namespace["made"]


ARRAY = Payload(name="array", item=8, code="import numpy\nmade = numpy.arange({items}, dtype='float64')")
BYTES = Payload(name="bytes", item=16, code="made = b'0123456789abcdef' * {items}")
FRAME = Payload(
    name="frame",
    item=31,  # two numbers of 8 bytes and a string of 15
    code="""\
import numpy
import pandas
names = pandas.Series(['customer-%06d' % i for i in range(1000)])
made = pandas.DataFrame({
    'price': numpy.arange({items}, dtype='float64'),
    'count': numpy.arange({items}, dtype='int64'),
    'name': names.iloc[numpy.arange({items}) % 1000].reset_index(drop=True),
})""",
)

PAYLOADS = (ARRAY, BYTES, FRAME)
