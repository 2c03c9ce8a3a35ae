"""What plain objects hold, read from their memory or written by `marshal`, so that no code runs and nothing is
touched.

Types of the many items of a container: a loop would write to the count of references of each item. After a fork
that copies every page that an item lies on: for a dictionary of 100,000 texts it took longer than all else that is
done around a cell. Memory is read as it lies, by numpy, without which nothing is read. The layouts are those of
CPython from 3.11 to 3.13; where containers of known content do not lie as expected, nothing is read either. Nor is
it while there are other threads: numpy lets them go on, and one of them could give back what is read.

Atoms and plain containers as bytes, for hashing: nothing is ever read back.

Generators of random numbers: building their state as Python objects takes 15 µs for `random` and 35 for numpy, and
each step looks twice. If the memory that the C object has for itself is the same byte for byte, so is what it would
say.
"""

from __future__ import annotations

import array
import ctypes
import marshal
import struct
import sys
from typing import Any, Final, NamedTuple

import xxhash

from cenote_worker.process.pristine import BUILTINS
from cenote_worker.process.threads import thread_count

__builtins__ = BUILTINS

FEWEST: Final = 1_000
"""Items from which on this is faster than a loop."""

_AT_ONCE: Final = 4_096
"""Items, so that what is computed on the way lies in few pages, which are copied too."""

_WORD: Final = 8
_HEAD: Final = object.__basicsize__ // _WORD
"""Words with which every object begins; the last of them is its type."""

_GENERAL: Final = 0
_TEXTS: Final = 1
"""Kinds of tables of dictionaries. The first has a hash before each key and value."""

_TABLE: Final = struct.Struct("=qBBBBIqq")
"""`PyDictKeysObject`: references, binary logarithms of the slots and of the bytes of their numbers, kind, version,
free entries, entries. The slots come next, and the entries behind them."""

_address = id


class Atoms(NamedTuple):
    """kinds: the types that there are. nan: whether a number is not equal to itself."""

    kinds: frozenset[type]
    nan: bool


_ALL: Final = 1 << 47
"""Bytes that a process can have at most."""


def _place(address: int) -> int:
    """Which word lies there. The first one is left out: an array that begins at zero is none to numpy."""
    return address // _WORD - 1


class _Reader:
    """numpy: the library, as it was before anybody could change it."""

    def __init__(self, numpy: Any) -> None:
        everything = (ctypes.c_char * (_ALL - _WORD)).from_address(_WORD)
        self._words = numpy.frombuffer(everything, numpy.int64)  # nothing of it is read but what is asked for
        self._numbers = self._words.view(numpy.float64)
        self._atoms = {
            _address(each): each
            for each in (int, float, str, bytes, bool, complex, type(None), type(Ellipsis))
        }

    def of_items(self, values: list[object] | tuple[object, ...]) -> Atoms | None:
        place = _place(_address(values)) + _HEAD + 1
        if type(values) is list:
            place = _place(int(self._words[place]))
        return self._look(self._words[place : place + len(values)])

    def of_keys(self, values: dict[Any, object]) -> Atoms | None:
        entries = self._entries(values)
        return None if entries is None else self._look(entries[:, -2])

    def of_values(self, values: dict[Any, object]) -> Atoms | None:
        entries = self._entries(values)
        return None if entries is None else self._look(entries[:, -1])

    def _entries(self, values: dict[Any, object]) -> Any:
        """A row each, with the key and the value last, or two zeros; None for an instance's attributes."""
        start = _place(_address(values)) + _HEAD
        _used, _version, table, apart = self._words[start : start + 4].tolist()
        if apart:
            return None
        _, _slots, numbers, kind, _, _, _, count = _TABLE.unpack(ctypes.string_at(table, _TABLE.size))
        if kind not in (_GENERAL, _TEXTS):
            return None
        width = 3 if kind == _GENERAL else 2
        first = _place(table + _TABLE.size + (1 << numbers))
        return self._words[first : first + count * width].reshape(count, width)

    def _look(self, addresses: Any) -> Atoms | None:
        """None where there is anything but atoms."""
        kinds, nan = set[int](), False
        for start in range(0, len(addresses), _AT_ONCE):
            places = addresses[start : start + _AT_ONCE] // _WORD - 1
            places = places[places >= 0]
            types = self._words[places + (_HEAD - 1)]
            rest = types
            for known in kinds:
                rest = rest[rest != known]
            while len(rest):
                kinds.add(found := int(rest[0]))
                rest = rest[rest != found]
            if not kinds <= self._atoms.keys():
                return None
            nan = nan or self._has_nan(places, types, kinds)
        return Atoms(frozenset(self._atoms[each] for each in kinds), nan)

    def _has_nan(self, places: Any, types: Any, kinds: set[int]) -> bool:
        for kind, parts in ((_address(float), 1), (_address(complex), 2)):
            if kind in kinds:
                here = places[types == kind]
                for part in range(parts):
                    numbers = self._numbers[here + (_HEAD + part)]
                    # numpy's `any` is a function in Python, which a cell may replace.
                    if len(numbers[numbers != numbers]):
                        return True
        return False


def _reader() -> _Reader | None:
    """None without numpy, and where memory is not as expected."""
    numpy = sys.modules.get("numpy")
    if numpy is None or _HEAD != 2 or ctypes.sizeof(ctypes.c_void_p) != _WORD:
        return None
    reader = _Reader(numpy)
    return reader if _is_as_expected(reader) else None


def _is_as_expected(reader: _Reader) -> bool:
    nan = float("nan")
    texts: dict[Any, object] = {"a": 1, "b": b"", "c": None}
    mixed: dict[Any, object] = {
        **{number: str(number) for number in range(300)},
        b"a": complex(0, nan),
        2.5: [1],
    }
    del texts["b"], mixed[2.5]
    told = (
        reader.of_items([1, "a", True]),
        reader.of_items((..., 1.5, nan)),
        reader.of_items([None, []]),
        reader.of_keys(texts),
        reader.of_values(texts),
        reader.of_keys(mixed),
        reader.of_values(mixed),
    )
    return told == (
        (frozenset((int, str, bool)), False),
        (frozenset((type(...), float)), True),
        None,
        (frozenset((str,)), False),
        (frozenset((int, type(None))), False),
        (frozenset((int, bytes)), False),
        (frozenset((str, complex)), True),
    )


_READER: Final = _reader()


def atoms_of(values: Any) -> Atoms | None:
    """Of a list or tuple. None where it has few items, or others than atoms, or that cannot be found out."""
    return _READER.of_items(values) if _can_read(values, (list, tuple)) else None  # type: ignore[union-attr]


def atoms_of_keys(values: Any) -> Atoms | None:
    """The same of a dictionary's."""
    return _READER.of_keys(values) if _can_read(values, (dict,)) else None  # type: ignore[union-attr]


def atoms_of_values(values: Any) -> Atoms | None:
    """The same of a dictionary's."""
    return _READER.of_values(values) if _can_read(values, (dict,)) else None  # type: ignore[union-attr]


def _can_read(values: Any, kinds: tuple[type, ...]) -> bool:
    return _READER is not None and type(values) in kinds and len(values) >= FEWEST and _is_alone()


def _is_alone() -> bool:
    try:
        return thread_count() == 1
    except OSError:
        return False


_POINTERS_AT: Final = object.__basicsize__ + _WORD
"""Where a list has the address of its items: behind its head and their number."""


def _pointers(values: list[Any]) -> bytes:
    start = ctypes.c_size_t.from_address(_address(values) + _POINTERS_AT).value
    return ctypes.string_at(start, _WORD * len(values)) if values else b""


def _one_by_one(values: list[Any]) -> bytes:
    return array.array("Q", map(_address, values)).tobytes()


_PROBE: Final[list[Any]] = [*map(str, range(300)), None, [], 2.5]

addresses_of: Final = (
    _pointers
    if _HEAD == 2
    and ctypes.sizeof(ctypes.c_void_p) == _WORD
    and list.__basicsize__ == object.__basicsize__ + 3 * _WORD
    and _pointers(_PROBE) == _one_by_one(_PROBE)
    else _one_by_one
)
"""Of the items of a list of no other owner: eight bytes each. To ask each item for its own takes ten times as
long, and an audit hook hears of it each time."""


_dumps = marshal.dumps
_PLAIN = 2
"""The format without references: those depend on how often an object happens to be referred to."""

_NUMBERS: Final = {int: (b"i", 5), float: (b"g", 9)}
"""The letter of a type, and the bytes of an item with it. An integer of more than 32 bits has another letter."""

_HEADER: Final = 5
"""Bytes before the items of a list or tuple."""

_SAMPLES: Final = 16


def packed(value: Any) -> bytes:
    """Equal for equal values only: types, the order of dictionaries, signs of zeros and bits of NaNs are kept."""
    return _dumps(value, _PLAIN)


def digest_of_numbers(values: list[Any] | tuple[Any, ...]) -> str:
    """Of many numbers of one type; empty where there may be anything else among them, or a NaN.

    Asking each for its type takes longer than packing them all, and their bytes tell: if the first item has the
    letter, it is as long as all that have it, so the second begins behind that, and so on.
    """
    kind = type(values[0])
    step = max(len(values) // _SAMPLES, 1)
    if kind not in _NUMBERS or any(type(each) is not kind for each in values[::step]):
        return ""
    letter, size = _NUMBERS[kind]
    try:
        data = _dumps(values, _PLAIN)
    except ValueError:  # something that has no such form
        return ""
    if len(data) != _HEADER + size * len(values) or data[_HEADER::size].count(letter) != len(values):
        return ""
    if kind is float and _may_have_nan(values):
        return ""
    return xxhash.xxh3_128_hexdigest(data)


def _may_have_nan(values: list[Any] | tuple[Any, ...]) -> bool:
    """Of nothing but floats. Infinite ones may add up to a NaN."""
    if atoms := atoms_of(values):
        return atoms.nan
    total = sum(values)
    return bool(total != total)


_string_at = ctypes.string_at
_COUNT: Final = ctypes.sizeof(ctypes.c_ssize_t)
"""Bytes of an object's count of references, which comes first and tells nothing."""

_OF_NUMPY: Final = ("numpy.random.mtrand", "RandomState"), ("numpy.random._mt19937", "MT19937")
"""Types whose objects have nothing elsewhere: where the numbers come from, and what is behind it."""


def mark_of_random(generator: Any) -> object:
    """Of a `random.Random`. Two marks are equal only if the state is; the second half lies elsewhere."""
    return _memory(generator), id(generator.gauss_next), generator.gauss_next


def mark_of_legacy(generator: Any) -> object | None:
    """Of a `numpy.random.RandomState`; None for one that has its state somewhere else."""
    parts = generator, generator._bit_generator
    if any((type(part).__module__, type(part).__name__) not in _OF_NUMPY for part in parts):
        return None
    return tuple(map(_memory, parts))


def _memory(obj: object) -> bytes:
    return _string_at(id(obj) + _COUNT, type(obj).__basicsize__ - _COUNT)
