"""Takes a value apart into a header and buffers. Runs in the jail; what it writes is not trusted."""

from __future__ import annotations

import json
from array import array
from contextlib import suppress
from dataclasses import dataclass

from cenote_security.errors import UnsafeValueError
from cenote_security.sealed_memory import Buffer
from cenote_security.values.kinds import fallback, writers
from cenote_security.values.node import DEFAULT_LIMITS, VERSION, Foreign, Json, Limits, Node
from cenote_security.values.region import RegionWriter
from cenote_security.values.shapes import Shape, class_name, shape_of

SHORT_TEXT = 256
"""Characters up to which text stands in the header; longer text goes into the region, once per object."""

_PACKED_FROM = 32  # below this, a run of numbers is shorter as text
_INLINE = frozenset({type(None), bool, float})

_PENDING = -1
_ENTERED = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """An encoded value. Written end to end, `pieces` is the region of `size` bytes; they are views, not copies."""

    header: bytes
    pieces: tuple[Buffer, ...]
    size: int

    def region(self) -> bytes:
        """The region as one copy, for values small enough to travel inside a message."""
        return b"".join(self.pieces)


def encode(value: object, *, limits: Limits = DEFAULT_LIMITS) -> Encoded:
    """Take a value apart. Shared references and cycles are kept; large buffers are not copied.

    Raises UnsafeValueError that names the first class that has no place in the encoding, or the value's class
    when it is too large. The value must not be changed until the pieces are written.
    """
    encoder = Encoder(limits)
    root = encoder.child(value)
    encoder.finish()
    text = json.dumps(
        [VERSION, root, encoder.nodes], ensure_ascii=False, separators=(",", ":"), check_circular=False
    )
    header = text.encode("utf-8", "surrogatepass")
    if len(header) > limits.header_bytes or header.count(b"[") + header.count(b"{") > limits.brackets:
        raise UnsafeValueError(class_name(type(value)), f"its description takes {len(header)} bytes")
    return Encoded(header=header, pieces=tuple(encoder.region.pieces), size=encoder.region.size)


class Encoder:
    """The table of nodes while it grows.

    Nodes are written in post-order, so that a decoder that reads the table in order has a node's children
    first, except where there is a cycle. The walk keeps its own stack: nesting costs memory, not C frames.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.nodes: list[Node] = []
        self.region = RegionWriter(limits.region_bytes)
        self._writers = writers()
        self._shapes: dict[type, Shape] = {}
        self._references: dict[int, list[int]] = {}
        self._alive: list[object] = []  # an id is unique only while its object lives
        self._stack: list[tuple[list[int], object, Node | None]] = []  # a node is there once it was entered

    def child(self, value: Foreign) -> Foreign:
        """An inline scalar, or a reference to a node that will exist when the encoding is finished."""
        kind = type(value)
        if kind in _INLINE:
            return value
        if kind is str and len(value) <= SHORT_TEXT:
            return value
        if kind is int and -(2**63) <= value < 2**63:
            return value
        return self._reference(value)

    def run(self, values: list[Foreign]) -> Foreign:
        """Children in a row. Long runs of numbers and text take no Python code per element."""
        kinds = set(map(type, values))
        if kinds <= _INLINE and not (kinds == {float} and len(values) >= _PACKED_FROM):
            return values
        if kinds == {str} and max(map(len, values)) <= SHORT_TEXT:
            return values
        if len(kinds) == 1 and len(values) >= _PACKED_FROM and (packed := self._packed(kinds.pop(), values)):
            return packed
        return list(map(self.child, values))

    def buffer(self, content: Buffer, owner: object, *, align: bool = True) -> list[Json]:
        """Where these bytes will be in the region. They must stay unchanged and alive until they are written."""
        return self.region.add(content, class_name(type(owner)), align=align)

    def shape(self, cls: type) -> Shape:
        """How instances of the class are taken apart. Raises UnsafeValueError when they are not."""
        found = self._shapes.get(cls)
        if found is None:
            found = self._shapes[cls] = shape_of(cls)
        return found

    def finish(self) -> None:
        """Write the nodes of everything that has been referenced."""
        while self._stack:
            reference, value, node = self._stack.pop()
            if node is not None:
                reference[0] = len(self.nodes)
                self.nodes.append(node)
            elif reference[0] == _PENDING:
                try:
                    self._enter(reference, value)
                except UnsafeValueError as error:
                    raise UnsafeValueError(error.class_name, self._placed(error.detail, value)) from None

    def _enter(self, reference: list[int], value: object) -> None:
        if len(self._references) > self.limits.nodes:
            raise UnsafeValueError(class_name(type(value)), f"more than {self.limits.nodes} objects")
        reference[0] = _ENTERED
        position = len(self._stack)
        node = self._writers.get(type(value), fallback)(self, value)
        self._stack.insert(position, (reference, value, node))  # below its children: they are finished first

    def _reference(self, value: object) -> list[int]:
        reference = self._references.get(id(value))
        if reference is None:
            reference = self._references[id(value)] = [_PENDING]
            self._alive.append(value)
        if reference[0] == _PENDING:
            # Pushed again when it waits further down: post-order wants it before the node that asks now.
            self._stack.append((reference, value, None))
        return reference

    def _packed(self, kind: type, values: list[Foreign]) -> dict[str, list[Json]] | None:
        code = {int: "q", float: "d"}.get(kind)
        if code is None:
            return None
        try:
            numbers = array(code, values)
        except OverflowError:
            return None
        return {code: self.buffer(memoryview(numbers).cast("B"), values)}

    def _placed(self, detail: str, value: object) -> str:
        """The detail with the attribute or key that holds the value, for a user who knows only the container."""
        holder = next((held for _, held, node in reversed(self._stack) if node is not None), None)
        held: object = holder if type(holder) is dict else None
        with suppress(AttributeError):  # past what the class makes of it
            held = held or object.__getattribute__(holder, "__dict__")
        if type(held) is not dict:
            return detail
        key = next((name for name, item in held.items() if item is value and type(name) is str), None)
        if key is None:
            return detail
        place = f"[{key!r:.50}]" if held is holder else f".{key:.50}"
        return f"{detail}{detail and '; '}in {class_name(type(holder))}{place}"
