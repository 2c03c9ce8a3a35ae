"""Text that a jail, a model or a server wrote, made fit for a terminal, a log, an error, a model.

Escape sequences retitle a window, fill the clipboard or repaint what was read before; marks of writing direction and
invisible characters make a text look like another one. What a program printed is data, and stays as it is
until it is shown.
"""

from __future__ import annotations

import re
from typing import Final

_HIDDEN: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls; C1 controls act as escapes on some terminals
    "\xad\u061c\u180e\u200b\u200e\u200f\u2060-\u2064\ufeff\ufff9-\ufffb"  # invisible
    "\u2028-\u202e\u2066-\u206f"  # line ends of other kinds, and marks of writing direction
    "\ud800-\udfff"  # halves of pairs, which no stream can write
    "\U000e0000-\U000e007f"  # tags: a whole ASCII text that is not seen
)
"""Not among them: joiners and variation selectors, which emoji and many scripts are made of."""

_IN_LINES: Final = re.compile(f"[{_HIDDEN}]")
_IN_PROGRESS: Final = re.compile(f"(?!\r)[{_HIDDEN}]")
_STYLE: Final = re.compile("\x1b\\[[0-9;:]*m")


def printable(text: str, *, lines: bool = False, progress: bool = False) -> str:
    """The text with control characters and marks of writing direction escaped, as `ascii` does it.

    lines: it may have several: line ends and tabs stay, and so does what scripts and emoji are made of; colours are
    left out. progress: carriage returns stay as well, for lines that overwrite themselves on a terminal.
    """
    if text.isprintable():
        return text
    if lines or progress:
        return (_IN_PROGRESS if progress else _IN_LINES).sub(_escaped, _STYLE.sub("", text))
    return "".join(char if char.isprintable() else _escaped_char(char) for char in text)


def _escaped(found: re.Match[str]) -> str:
    return _escaped_char(found[0])


def _escaped_char(char: str) -> str:
    return ascii(char)[1:-1]


def shown_size(size: int) -> str:
    """A number of bytes in words, as sizes are written: `2 GiB`, `1.5 MiB`, `512 B`."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size / 2**power:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} B"
