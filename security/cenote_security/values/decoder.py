"""Rebuilds a value from a header and a region that a jail wrote. Any bytes give a value or a CenoteError.

The table is flat and the work over it is iterative, so no nesting in a value becomes nesting of calls. Mutable
objects exist, empty, from the start; immutable ones are built as soon as their children exist; everything is
completed in the order of the table where it can be. What is in a cycle is completed when its last child exists.

Hashing, comparing and walking are counted before they happen. Tuples do not cache their hash and share freely: forty
of them, each holding the one before twice, hash in 2**40 steps. Numbers and tuples of numbers have hashes that
an attacker can compute: a million keys with one hash make a dict take 10**12 comparisons.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType

from cenote_security.errors import CenoteError, MalformedValueError, UnsafeValueError, UsageError
from cenote_security.garbage_collection import collector_off
from cenote_security.sealed_memory import Buffer
from cenote_security.values import expect
from cenote_security.values.kinds import KINDS
from cenote_security.values.node import (
    DEFAULT_LIMITS,
    VERSION,
    Foreign,
    Immutable,
    Json,
    Kind,
    Limits,
    Mutable,
    NodeParts,
    References,
    Runs,
)
from cenote_security.values.region import RegionReader
from cenote_security.values.shapes import Shape, class_name, class_reference, shape_of


class NodeSource:
    """The buffers of one encoded value, and the classes that its reader named."""

    def __init__(self, region: RegionReader, classes: Mapping[str, type], limits: Limits) -> None:
        self.region = region
        self.limits = limits
        self._classes = classes
        self._shapes: dict[str, Shape] = {}

    def shape(self, reference: Json, *kinds: str) -> Shape:
        """The class that the reader means by "module:qualname", if it is of one of these kinds.

        Raises UnsafeValueError when the reader named no such class: a name from a jail never imports anything.
        """
        name = expect.text(reference)
        found = self._shapes.get(name)
        if found is None:
            found = self._shapes[name] = self._look_up(name)
        if found.kind not in kinds:
            expect.malformed(f"class {found.name} is rebuilt in another way")
        return found

    def _look_up(self, name: str) -> Shape:
        if not name.isprintable():
            expect.malformed("the name of a class is not printable")
        cls = self._classes.get(name)
        if cls is None:
            raise UnsafeValueError(name.replace(":", ".").removeprefix("builtins."))
        return shape_of(cls)


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
        """Note a node in a cycle. It can be neither walked nor hashed: that might not end."""
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


_NO_CLASSES: Mapping[str, type] = MappingProxyType({})
_LONGEST_INTEGER = 20  # characters of the longest 64-bit number

_SHORT = 2**18  # bytes of a header whose containers are too few for the collector to be felt

_ABSENT, _SHELL, _COMPLETE = range(3)

_LEAF: References = ((), (), ())  # shared by all nodes without references: most of them, in large values


def decode(
    header: bytes,
    region: Buffer = b"",
    *,
    classes: Mapping[str, type] = _NO_CLASSES,
    limits: Limits = DEFAULT_LIMITS,
) -> object:
    """The value that was encoded.

    region: a private, writable map, which arrays then share without a copy and keep alive; or bytes.
    classes: "module:qualname" -> the classes whose instances may be rebuilt.

    Raises MalformedValueError for what no encoder writes, UnsafeValueError for an instance of another class.
    """
    try:
        with collector_off(stays=True) if len(header) > _SHORT else nullcontext():
            return _decode(header, region, classes, limits)
    except CenoteError:
        raise
    except Exception as error:  # noqa: BLE001  (a library, or a class of the reader's, refused hostile content)
        raise MalformedValueError(f"not an encoded value: {_bounded(error)}") from None


def _decode(header: bytes, region: Buffer, classes: Mapping[str, type], limits: Limits) -> object:
    parsed = _parse(header, limits)
    version, root, nodes = expect.items(parsed, 3)
    if type(version) is not int or version != VERSION:
        expect.malformed(f"version {version!r:.20}")
    if memoryview(region).nbytes > limits.region_bytes:
        expect.malformed(f"more than {limits.region_bytes} bytes of buffers")
    reader = RegionReader(region)
    table = _Table(expect.items(nodes), NodeSource(reader, classes, limits))
    value = table.rebuild(root)
    reader.finish()
    return value


def _parse(header: bytes, limits: Limits) -> Json:
    if len(header) > limits.header_bytes:
        expect.malformed(f"more than {limits.header_bytes} bytes of text")
    if header.count(b"[") + header.count(b"{") > limits.brackets:
        expect.malformed(f"more than {limits.brackets} lists")
    parsed: Json = json.loads(header.decode("utf-8", "surrogatepass"), parse_int=_parse_int)
    return parsed


def _parse_int(text: str) -> int:
    """Parsing takes quadratic time in the length of a number; longer ones are nodes, in hexadecimal."""
    if len(text) > _LONGEST_INTEGER:
        expect.malformed("an inline number is too long")
    return int(text)


def _bounded(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001
        text = ""
    return f"{type(error).__name__}: {text:.300}" if text else type(error).__name__


class _Table:
    """The nodes, what has become of each, and who waits for whom."""

    def __init__(self, nodes: list[Json], source: NodeSource) -> None:
        if len(nodes) > source.limits.nodes:
            expect.malformed(f"more than {source.limits.nodes} nodes")
        self._source = source
        self._nodes = [expect.items(node) for node in nodes]
        self._kinds: list[Kind] = []
        self._references: list[References] = []
        self._values: list[object] = [None] * len(nodes)
        self._states = [_ABSENT] * len(nodes)
        self._weights = Weights(len(nodes), source.limits)
        self._missing: dict[int, int] = {}
        self._waiting: dict[int, list[int]] = {}
        self._last: deque[int] = deque()

    def rebuild(self, root: Json) -> object:
        for index in range(len(self._nodes)):
            self._prepare(index)
        root_run: list[Json] = [root]
        root_references = self._scan(root_run)
        for index in range(len(self._nodes)):
            self._settle(index)
        while self._last:
            self._complete_all(self._last.popleft(), final=True)
        if self._states.count(_COMPLETE) != len(self._states):
            expect.malformed("it refers to itself through a value that cannot be part of a cycle")
        return self._resolve(root_run, root_references)[0]

    def _prepare(self, index: int) -> None:
        node = self._nodes[index]
        tag = node[0] if node else None
        kind = KINDS.get(tag) if type(tag) is str else None
        if kind is None or len(node) != 2 + kind.runs:
            expect.malformed(f"node {index} is of no known kind")
        self._kinds.append(kind)
        references = [self._scan(run) for run in node[2:]]
        self._references.append(references if any(references) else _LEAF)
        if isinstance(kind, Mutable):
            self._values[index] = kind.shell(NodeParts(source=self._source, meta=node[1], runs=[]))
            self._states[index] = _SHELL

    def _scan(self, run: Json) -> Sequence[int]:
        """The nodes that a run refers to. Checks every child on the way."""
        if type(run) is dict:
            return ()
        children = expect.items(run)
        kinds = set(map(type, children))
        if dict in kinds:
            expect.malformed("an object where a child belongs")
        if list not in kinds:
            return ()
        last = len(self._nodes) - 1
        return [expect.integer(expect.items(c, 1)[0], 0, last) for c in children if type(c) is list]

    def _settle(self, index: int) -> None:
        """Complete a node, or let it wait for those that it needs."""
        references, states = self._references[index], self._states
        needed = _COMPLETE if self._kinds[index].whole else _SHELL
        missing = references is not _LEAF and {r for run in references for r in run if states[r] < needed}
        if not missing:
            self._complete_all(index)
            return
        self._missing[index] = len(missing)
        for reference in missing:
            self._waiting.setdefault(reference, []).append(index)

    def _complete_all(self, index: int, *, final: bool = False) -> None:
        """Complete a node, and those that waited for it alone."""
        ready = [index]
        while ready:
            current = ready.pop()
            if not final and self._is_premature(current):
                self._last.append(current)
                continue
            self._complete(current)
            for waiter in self._waiting.pop(current, ()):
                self._missing[waiter] -= 1
                if not self._missing[waiter]:
                    ready.append(waiter)

    def _is_premature(self, index: int) -> bool:
        """A dict or set with a key whose own state, and so its hash, is not there yet: only in cycles."""
        kind, references = self._kinds[index], self._references[index]
        if references is _LEAF or isinstance(kind, Immutable):
            return False
        return any(self._states[r] != _COMPLETE for position in kind.hashed for r in references[position])

    def _complete(self, index: int) -> None:
        _, meta, *raw = self._nodes[index]
        references, kind = self._references[index], self._kinds[index]
        runs = [self._resolve(run, refs) for run, refs in zip(raw, references, strict=False)]
        for position in kind.walked:
            self._weights.spend_walk(runs[position], references[position])
        for position in kind.hashed:
            self._weights.spend_hashing(runs[position], references[position])
        if kind.frail:
            self._weights.check_depth([r for run in references for r in run])
        parts = NodeParts(source=self._source, meta=meta, runs=runs)
        if isinstance(kind, Immutable):
            self._values[index] = kind.build(parts)
        else:
            kind.fill(self._values[index], parts)
        self._weigh(index, meta, runs)
        self._states[index] = _COMPLETE

    def _weigh(self, index: int, meta: Json, runs: Runs) -> None:
        references = self._references[index]
        if references is _LEAF or type(self._values[index]).__hash__ is object.__hash__:
            self._weights.record_leaf(index, meta, runs)  # hashed and compared by identity
        elif all(self._states[r] == _COMPLETE for run in references for r in run):
            self._weights.record(index, meta, runs, references)
        else:
            self._weights.record_unknown(index)  # its children may yet become anything

    def _resolve(self, run: Json, references: Sequence[int]) -> list[object]:
        if type(run) is dict:
            return self._unpack(run)
        children: list[Foreign] = expect.items(run)
        if not references:
            return children  # scalars only; a caller that keeps the list copies it
        values = self._values
        return [values[c[0]] if type(c) is list else c for c in children]

    def _unpack(self, run: dict[str, Json]) -> list[object]:
        if len(run) != 1:
            expect.malformed("a packed run has one type")
        ((code, where),) = run.items()
        numbers: array[int] | array[float] = array(expect.choice(code, ("q", "d")))
        numbers.frombytes(self._source.region.take(where))
        return [*numbers]


def class_table(classes: Iterable[type]) -> dict[str, type]:
    """Classes by the name that both sides of the wall use for them. Of two with one name the later counts.

    Raises UsageError for what is not a class.
    """
    table: dict[str, type] = {}
    for cls in classes:
        if not isinstance(cls, type):
            raise UsageError(f"classes=[...] takes classes, not {class_name(type(cls))}")
        table[class_reference(cls)] = cls
    return table


def load(
    header: bytes,
    region: Buffer = b"",
    *,
    classes: Iterable[type] | Mapping[str, type] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> object:
    """Rebuild a value that a jail encoded. Nothing is unpickled, imported or looked up by a name from the jail.

    region: the mapped memory that came along; private and writable, arrays use it in place.
    classes: whose instances may be rebuilt, or a table made by `class_table`.

    Raises UnsafeValueError when the value holds an instance of another class, MalformedValueError when the bytes
    are not an encoded value.
    """
    table = classes if isinstance(classes, Mapping) else class_table(classes)
    return decode(header, region, classes=table, limits=limits)
