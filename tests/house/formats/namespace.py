"""A checkpoint of values of many kinds: `python -m tests.house.formats.namespace DATE` writes it.

Pickles name the functions that rebuild a value. This file holds those names: moved code must still be found by
them.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.house.formats.written import SANDBOX, unowned

from cenote.runtime import PythonRuntime

NAMESPACES: Final = Path(__file__).parent / "namespaces"

CELLS: Final = (
    """
import collections, dataclasses, enum, functools, logging, types, typing, weakref
class Point:
    __slots__ = ("x", "y")
    def __init__(self, x, y):
        self.x, self.y = x, y
@dataclasses.dataclass(slots=True, frozen=True)
class Row:
    name: str
    tags: list = dataclasses.field(default_factory=list)
class Colour(enum.Enum):
    RED = 1
    BLUE = "b"
    def shout(self):
        return self.name + "!"
class Flag(enum.Flag):
    A = 1
    B = 2
class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.by_meta = True
        return made
class Made(metaclass=Meta):
    pass
class Pair(typing.NamedTuple):
    left: int
    right: int = 2
class Options(typing.TypedDict, total=False):
    size: int
T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    def __init__(self, value: T):
        self.value = value
class Log(list):
    def __init__(self):
        super().__init__()
        self.extra = 1
class Computed:
    @functools.cached_property
    def slow(self):
        return 5
""",
    """
point = Point(1, 2)
row = Row("a", [1])
colour, flags = Colour.BLUE, Flag.A | Flag.B
made, pair, box, options = Made(), Pair(1), Box[int](4), Options(size=3)
alias = list[Box[int]]
log = Log()
log.append(5)
ring = {"one": 1}
ring["self"] = ring
computed = Computed()
computed.slow
def counter(total):
    def add(n):
        nonlocal total
        total += n
        return total
    return add
add = counter(10)
add(5)
@functools.lru_cache
def square(n):
    return n * n
square(3)
@functools.singledispatch
def kind(value):
    return "other"
@kind.register
def _(value: int):
    return "int"
proxy = weakref.proxy(made)
nan = float("nan")
keyed, twice = {nan: 1}, [nan, nan]
mapping = types.MappingProxyType({"a": 1})
counts = collections.Counter("aab")
method = log.append
module = types.ModuleType("made_here")
module.value = 7
logger = logging.getLogger("mine")
logger.setLevel(logging.DEBUG)
""",
    """
import numpy as np
base = np.arange(12.0)
part = base[2:6]
class Own(np.ndarray):
    pass
own = base[:3].view(Own)
mixed = np.array([point, None], dtype=object)
""",
)

QUESTION: Final = """
part[0] = 50.0
method(6)
(point.x, row, colour.shout(), flags is Flag.A | Flag.B, made.by_meta, pair, box.value, options, str(alias),
 log, log.extra, ring["self"] is ring, computed.__dict__, add(1), square(3), kind(1), kind(""), proxy.by_meta,
 keyed[nan], twice[0] is nan, dict(mapping), counts.most_common(1), module.value, logger.level,
 base[2], type(own).__name__, mixed[0] is point)
"""

ANSWER: Final = (
    "(1, Row(name='a', tags=[1]), 'BLUE!', True, True, Pair(left=1, right=2), 4, {'size': 3}, "
    "'list[__main__.Box[int]]', [5, 6], 1, True, {'slow': 5}, 16, 9, 'int', 'other', True, 1, True, {'a': 1}, "
    "[('a', 2)], 7, 10, np.float64(50.0), 'Own', True)"
)


def main() -> None:
    with TemporaryDirectory() as made:
        with PythonRuntime(sandbox=SANDBOX, store=str(Path(made) / "store"), name="r") as runtime:
            for code in CELLS:
                assert runtime.execute(code).error is None
            runtime.checkpoint()
        with tarfile.open(NAMESPACES / f"{sys.argv[1]}.tar.xz", "w:xz") as archive:
            archive.add(made, ".", filter=unowned)


if __name__ == "__main__":
    main()
