"""Names of pandas frequencies, such as `3D`, `h`, `W-SUN`, `QE-DEC`: only these reach pandas' own parser."""

from __future__ import annotations

import re

from cenote_security.errors import UnsafeValueError
from cenote_security.values import expect
from cenote_security.values.node import Foreign, Json

_TICKS = r"D|h|min|s|ms|us|ns"
_CALENDAR = r"B|W|ME|MS|BME|BMS|SME|SMS|QE|QS|BQE|BQS|YE|YS|BYE|BYS|M|Q|Y"
_FREQUENCY = re.compile(rf"(?:[1-9]\d{{0,5}})?(?:{_TICKS}|(?:{_CALENDAR})(?:-[A-Z]{{3}})?)")


def frequency_name(offset: Foreign) -> str | None:
    """The name of a frequency, or None for one that is not in the grammar (custom calendars, for one)."""
    name = None if offset is None else offset.freqstr
    return name if isinstance(name, str) and _FREQUENCY.fullmatch(name) else None


def check_frequency(name: str, class_name: str) -> str:
    """The name, if it is in the grammar. UnsafeValueError that names the class otherwise."""
    if not _FREQUENCY.fullmatch(name):
        raise UnsafeValueError(class_name, f"of frequency {name:.100}")
    return name


def read_frequency(meta: Json) -> str:
    name = expect.text(meta)
    return name if _FREQUENCY.fullmatch(name) else expect.malformed("expected a frequency")


def is_slow(name: str) -> bool:
    """Whether pandas checks it date by date, in Python, rather than by arithmetic."""
    return not re.fullmatch(rf"\d*(?:{_TICKS})", name)
