"""The content of plain objects, read from their memory or written by `marshal`, without running code or changing
reference counts.

Types of the many items of a container: a loop would write to the reference count of each item. After a fork that
copies every page that an item is on: for a dictionary of 100,000 texts it took longer than all other work around a
cell. Memory is read by numpy; without numpy nothing is read. The layouts are those of CPython from 3.11 to 3.13; if
containers of known content do not have the expected layout, nothing is read either. Nor is it while there are other
threads: numpy lets them run, and one of them could free the memory.

Atoms and plain containers as bytes, for hashing: nothing is ever read back.

Generators of random numbers: building their state as Python objects takes 15 µs for `random` and 35 for numpy, and
each step looks twice. If the C object's own memory is the same byte for byte, so is its state.
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
"""Items per batch, so that intermediate results use few pages, which are copied too."""

_WORD: Final = 8
_HEAD: Final = object.__basicsize__ // _WORD
"""Words of an object's header; the last of them is its type."""

_GENERAL: Final = 0
_TEXTS: Final = 1
"""Kind of a dictionary's table. The first kind has a hash before each key and value."""

_TABLE: Final = struct.Struct("=qBBBBIqq")
"""`PyDictKeysObject`: references, binary logarithms of the number of slots and of the size of their indexes, kind,
version, free entries, entries. The slots come next, and the entries after them."""

_address = id


class Atoms(NamedTuple):
    """kinds: the types that occur. nan: whether a number is not equal to itself."""

    kinds: frozenset[type]
    nan: bool


_ALL: Final = 1 << 47
"""Maximum bytes of a process's address space."""


def _place(address: int) -> int:
    """The index of the word at an address. The first word is left out: numpy has no array that begins at zero."""
    return address // _WORD - 1


class _Reader:
    """numpy: the library, before user code could change it."""

    def __init__(self, numpy: Any) -> None:
        everything = (ctypes.c_char * (_ALL - _WORD)).from_address(_WORD)
        self._words = numpy.frombuffer(everything, numpy.int64)  # only requested words are read
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
        """One row per entry, with the key and the value last, or two zeros; None for an instance's attributes."""
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
        """None if there is anything but atoms."""
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
                    # numpy's `any` is a Python function, which a cell may replace.
                    if len(numbers[numbers != numbers]):
                        return True
        return False


def _reader() -> _Reader | None:
    """None without numpy, and if memory is not as expected."""
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
    """The atoms of a list or tuple. None if it has few items, or others than atoms, or that is unknown."""
    return _READER.of_items(values) if _can_read(values, (list, tuple)) else None  # type: ignore[union-attr]


def atoms_of_keys(values: Any) -> Atoms | None:
    """The same for a dictionary's keys."""
    return _READER.of_keys(values) if _can_read(values, (dict,)) else None  # type: ignore[union-attr]


def atoms_of_values(values: Any) -> Atoms | None:
    """The same for a dictionary's values."""
    return _READER.of_values(values) if _can_read(values, (dict,)) else None  # type: ignore[union-attr]


def _can_read(values: Any, kinds: tuple[type, ...]) -> bool:
    return _READER is not None and type(values) in kinds and len(values) >= FEWEST and _is_alone()


def _is_alone() -> bool:
    try:
        return thread_count() == 1
    except OSError:
        return False


_POINTERS_AT: Final = object.__basicsize__ + _WORD
"""Offset of the address of a list's items: after its header and their number."""


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
"""Identities of the items of a list without other owners: eight bytes each. Calling `id` for each item takes ten
times as long, and an audit hook sees each call."""


def identities_of(values: list[Any]) -> list[int]:
    """`id` of each item of a list without other owners."""
    return memoryview(addresses_of(values)).cast("Q").tolist()


_dumps = marshal.dumps
_PLAIN = 2
"""The format without references, which depend on incidental reference counts."""

_NUMBERS: Final = {int: (b"i", 5), float: (b"g", 9)}
"""The letter of a type, and the bytes of an item with it. An integer of more than 32 bits has another letter."""

_HEADER: Final = 5
"""Bytes before the items of a list or tuple."""

_SAMPLES: Final = 16


def packed(value: Any) -> bytes:
    """Equal for equal values only: types, the order of dictionaries, signs of zeros and bits of NaNs are
    preserved."""
    return _dumps(value, _PLAIN)


def digest_of_numbers(values: list[Any] | tuple[Any, ...]) -> str:
    """A digest of many numbers of one type; empty if there may be anything else among them, or a NaN.

    Checking each type takes longer than packing them all, and the bytes show the types: an item with the expected
    letter has a fixed length, so the next one begins after it, and so on.
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
    """For floats only. Infinities may add up to a NaN."""
    if atoms := atoms_of(values):
        return atoms.nan
    total = sum(values)
    return bool(total != total)


_string_at = ctypes.string_at
_COUNT: Final = ctypes.sizeof(ctypes.c_ssize_t)
"""Bytes of an object's reference count, which comes first and is ignored."""

_OF_NUMPY: Final = ("numpy.random.mtrand", "RandomState"), ("numpy.random._mt19937", "MT19937")
"""Types whose objects have no other state: the generator, and its bit generator."""


def mark_of_random(generator: Any) -> object:
    """The mark of a `random.Random`. Two marks are equal only if the state is; the second half is stored
    elsewhere."""
    return _memory(generator), id(generator.gauss_next), generator.gauss_next


def mark_of_legacy(generator: Any) -> object | None:
    """The mark of a `numpy.random.RandomState`; None for one with its state elsewhere."""
    parts = generator, generator._bit_generator
    if any((type(part).__module__, type(part).__name__) not in _OF_NUMPY for part in parts):
        return None
    return tuple(map(_memory, parts))


def _memory(obj: object) -> bytes:
    return _string_at(id(obj) + _COUNT, type(obj).__basicsize__ - _COUNT)
