"""How many fields a message has, counted before it is parsed.

The parser makes an object of some 50 to 200 bytes of each message in a list, and two bytes are enough for one on the
wire: sixteen megabytes of a jail's become a gigabyte here. See "Encoding" in the documentation of Protocol Buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from cenote_security.errors import ProtocolViolation

_SIZED = 2
"""Of the codings of a field: a length comes first."""

_LARGE = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)


def check_count(data: bytes, kind: type[Message], most: int) -> None:
    """Takes time for what is counted, not for what there is: a message without lists of its own counts as one.

    Raises ProtocolViolation for more than `most`, and for what no message of ours looks like.
    """
    try:
        _left(data, 0, len(data), cast("Descriptor", kind.DESCRIPTOR), most)
    except IndexError:
        raise ProtocolViolation("a message that ends too early") from None


def _left(data: bytes, at: int, end: int, kind: Descriptor, room: int) -> int:
    """What is left of the room when the fields of this message are counted."""
    lists = _with_lists(kind)
    while at < end:
        room -= 1
        if room < 0:
            raise ProtocolViolation("a message with more parts than anybody asks for")
        key, at = _varint(data, at)
        size, at = _size(data, at, key & 7)
        inner = lists.get(key >> 3) if key & 7 == _SIZED else None
        if inner is not None:
            room = _left(data, at, min(at + size, end), inner, room)
        at += size
    return room


def _size(data: bytes, at: int, coding: int) -> tuple[int, int]:
    """Of what follows a key, and where that begins."""
    match coding:
        case 0:  # a number
            return 0, _varint(data, at)[1]
        case 1:
            return 8, at
        case _ if coding == _SIZED:
            return _varint(data, at)
        case 5:
            return 4, at
    raise ProtocolViolation("a message with a field of no kind that we use")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends. Raises IndexError behind the data."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ProtocolViolation("a message with a number that is too long")


@cache
def _with_lists(kind: Descriptor) -> Mapping[int, Descriptor]:
    """Its fields that are messages with lists of texts or messages, or with such messages, by number."""
    return {
        field.number: field.message_type
        for field in kind.fields
        if field.message_type is not None and _has_lists(field.message_type)
    }


def _has_lists(kind: Descriptor) -> bool:
    listed = any(field.is_repeated and field.cpp_type in _LARGE for field in kind.fields)
    return listed or bool(_with_lists(kind))
