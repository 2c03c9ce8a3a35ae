"""How far the log has come, signed: what is cut off at the end of the log is missed by it. Values only.

The file of the head has two slots on pages of their own, written by turns, so that a write that was torn by a crash
leaves the other one. It never grows: a full disk cannot stop it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from cenote.gateway.audit.chain import Mark

SLOT_BYTES: Final = 4096
_SLOT: Final = re.compile(rb"([0-9]{20}) ([0-9a-f]{64}) ([0-9a-f]{64})\n")


_HEAD_DOMAIN: Final = "cenote audit head"
_BASE_DOMAIN: Final = "cenote audit base"
"""A head that was copied is no base: that would take away whatever lies before it."""


def head_slot(mark: Mark, key: bytes) -> bytes:
    """One slot, as it is written."""
    return _slot(mark, key, _HEAD_DOMAIN)


def signed_base(mark: Mark, key: bytes) -> bytes:
    """The content of a file that says after which entry the log begins, since older files were removed."""
    return _slot(mark, key, _BASE_DOMAIN)


def read_base(content: bytes, key: bytes) -> Mark | None:
    """The mark, if it was signed with this key."""
    return _read_slot(content, 0, key, _BASE_DOMAIN)


def _slot(mark: Mark, key: bytes, domain: str) -> bytes:
    text = f"{mark.number:020d} {mark.hash}"
    return f"{text} {_mac(text, key, domain)}\n".encode("ascii").ljust(SLOT_BYTES, b" ")


def read_head(content: bytes, key: bytes) -> tuple[Mark, int] | None:
    """The newest mark that was signed with this key, and its slot, 0 or 1. None when there is none."""
    marks = [
        (mark, slot) for slot in (0, 1) if (mark := _read_slot(content, slot, key, _HEAD_DOMAIN)) is not None
    ]
    return max(marks, key=lambda found: found[0].number) if marks else None


def _read_slot(content: bytes, slot: int, key: bytes, domain: str) -> Mark | None:
    match = _SLOT.match(content, slot * SLOT_BYTES)
    if match is None:
        return None
    number, digest, mac = (group.decode("ascii") for group in match.groups())
    if not hmac.compare_digest(mac, _mac(f"{number} {digest}", key, domain)):
        return None
    return Mark(number=int(number), hash=digest)


def _mac(text: str, key: bytes, domain: str) -> str:
    return hmac.new(key, f"{domain}\0{text}".encode("ascii"), hashlib.sha256).hexdigest()
