"""How text and numbers enter a message. Every message is made and filled through here.

A `string` field takes only what UTF-8 can write, and Python's text may hold half of a surrogate pair: a model writes
half an emoji in JSON, a file name cannot be decoded. An integer field has bounds, and what an object says of its own
size may lie outside. Where such a value met a message, the request that carried it was lost, or a process.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from typing import Final, ParamSpec, TypeVar

from google.protobuf.message import Message

__builtins__ = dict(vars(builtins))
"""As they were before any cell of a jail ran: it may assign to them."""

Fields = ParamSpec("Fields")
Made = TypeVar("Made")

MAX_UINT64: Final = 2**64 - 1

_is_ascii, _encode = str.isascii, str.encode
"""Of `str` itself: a jail's own kinds of text may say anything."""

_NO_TEXT: Final = (bytes, bytearray, memoryview)


def utf8_text(text: str) -> str:
    """The text, with lone surrogates written out as Python's `ascii` writes them: `\\ud83d`."""
    if _is_ascii(text):
        return text
    return _encode(text, "utf-8", "backslashreplace").decode("utf-8")


def utf8_texts(texts: Iterable[str]) -> list[str]:
    """The same of each."""
    return [utf8_text(text) for text in texts]


def utf8_items(texts: Mapping[str, str]) -> dict[str, str]:
    """The same of keys and values."""
    return {utf8_text(key): utf8_text(text) for key, text in texts.items()}


def unsigned(number: int) -> int:
    """What was measured or estimated of an object that may lie about itself, brought into the bounds of a `uint64`.

    Only for such. A number that a caller gives is refused where it is wrong, not changed.
    """
    return min(max(int(number), 0), MAX_UINT64)


def make(kind: Callable[Fields, Made], /, *_: Fields.args, **fields: Fields.kwargs) -> Made:
    """A message of this kind, its texts made fit.

    kind: a message class, or the `add` of a repeated field. Raises ValueError for a number outside of its field.
    """
    fitting: dict[str, object] = {name: _fitting(value) for name, value in fields.items()}
    return kind(**fitting)  # type: ignore[call-arg]


def put(message: Message, name: str, value: object) -> None:
    """Sets a field by its name, a text made fit. Raises TypeError, ValueError."""
    setattr(message, name, _fitting(value))


def _fitting(value: object) -> object:
    """Messages, numbers and bytes as they are; texts, and the texts in lists and mappings, in UTF-8."""
    if isinstance(value, str):
        return utf8_text(value)
    if isinstance(value, dict):
        return {_fitting(key): _fitting(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, _NO_TEXT):
        return [_fitting(item) for item in value]
    return value
