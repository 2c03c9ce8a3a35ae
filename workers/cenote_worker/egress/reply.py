"""A server's answer to a plain request, with the word that nothing follows it: RFC 9112 section 9.6 wants that of who
closes. A client that was not told would send its next request into the end of this one. Pure.

Lenient: an answer is its client's to read, so what is none of HTTP/1 passes as it is.
"""

from __future__ import annotations

import re
from typing import Final

from cenote_worker.egress.request import MAX_HEAD

_PROTOCOL: Final = b"HTTP/1."
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_INTERIM: Final = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9]\b")
_ABOUT_THE_CONNECTION: Final = re.compile(
    rb"^(?:connection|keep-alive|proxy-connection)[ \t]*:.*\n(?:[ \t].*\n)*", re.IGNORECASE | re.MULTILINE
)

_LEAST_MASKED: Final = 8
"""Characters of a credential, or a word in it. Scheme names, such as `Bearer`, stand in any answer."""


class Reply:
    """Takes the server's bytes and gives those that the jail gets."""

    def __init__(self) -> None:
        self._seen = b""
        """Of a head without an end."""
        self._begun = False
        """The final head has passed."""

    def take(self, chunk: bytes) -> bytes:
        """What may pass now."""
        if self._begun:
            return chunk
        self._seen += chunk
        passed = b""
        while (end := _END_OF_HEAD.search(self._seen)) and _INTERIM.match(self._seen):
            passed += self._seen[: end.end()]
            self._seen = self._seen[end.end() :]
        if end is None and len(self._seen) <= MAX_HEAD and _may_be_http(self._seen):
            return passed
        self._begun = True
        return passed + (self._final(end.end()) if end and _may_be_http(self._seen) else self.rest())

    def rest(self) -> bytes:
        """What no end has come of, once there is no more."""
        rest, self._seen = self._seen, b""
        return rest

    def _final(self, end: int) -> bytes:
        seen = self.rest()
        status, line_end, lines = seen[:end].partition(b"\n")
        return (
            status + line_end + b"Connection: close\r\n" + _ABOUT_THE_CONNECTION.sub(b"", lines) + seen[end:]
        )


def _may_be_http(seen: bytes) -> bool:
    return seen.startswith(_PROTOCOL) or _PROTOCOL.startswith(seen)


class Mask:
    """Stars in place of a credential, where a server says it back: a help against echoes, and no wall.

    Of the same length, so that the answer's framing holds. What is encoded in any way is not found.
    """

    def __init__(self, value: str) -> None:
        words = {word for word in (value, *value.split(" ")) if len(word) >= _LEAST_MASKED}
        self._needles = [word.encode() for word in sorted(words, key=len, reverse=True)]
        self._pattern = re.compile(b"|".join(map(re.escape, self._needles)))
        self._held = b""
        """The end of what has come, which a needle may begin with."""

    def take(self, chunk: bytes) -> bytes:
        """What may pass now."""
        if not self._needles:
            return chunk
        seen = self._pattern.sub(lambda found: b"*" * len(found[0]), self._held + chunk)
        held = self._begun(seen)
        self._held = seen[len(seen) - held :]
        return seen[: len(seen) - held]

    def rest(self) -> bytes:
        """What is held when there is no more."""
        rest, self._held = self._held, b""
        return rest

    def _begun(self, seen: bytes) -> int:
        """How many bytes at its end a needle begins with."""
        longest = min(len(seen), len(self._needles[0]) - 1)
        return next(
            (
                size
                for size in range(longest, 0, -1)
                if any(each.startswith(seen[-size:]) for each in self._needles)
            ),
            0,
        )
