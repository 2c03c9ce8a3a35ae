"""The secrets of a model: used in requests, never shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NoReturn

from cenote_security.errors import NotTransferableError, UsageError

MIN_REDACTED = 6
"""Shorter values are placeholders of servers without keys ("x", "EMPTY"); cutting them out garbles text."""

MASK = "***"

Redact = Callable[[str], str]
"""Cuts credentials out of a text that is going to be shown: servers echo what they were sent."""


class Credentials:
    """An API key and other secret arguments. No repr, error, log or recording shows them; no jail gets them.

    api_key: the plain key. extra: further arguments with their plain values, nested as the caller gave them.
    """

    __slots__ = ("api_key", "extra")

    def __init__(self, api_key: str | None = None, extra: Mapping[str, object] | None = None) -> None:
        self.api_key = clean_key(api_key) if api_key else None
        self.extra = MappingProxyType(dict(extra or {}))

    def redact(self, text: str) -> str:
        """`text` with every secret replaced by `***`."""
        for secret in sorted(_strings([self.api_key, self.extra]), key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def __repr__(self) -> str:
        return f"Credentials({MASK})"

    def __reduce__(self) -> NoReturn:
        raise NotTransferableError("a model", "it holds credentials; give the jail a host function instead")


def clean_key(api_key: str) -> str:
    """The key without the line break that comes along from a file.

    Raises UsageError, without showing the key, for one that an HTTP header cannot carry.
    """
    key = api_key.strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError("the api_key has characters that no HTTP header can carry; was it copied in full?")
    return key


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= MIN_REDACTED:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
