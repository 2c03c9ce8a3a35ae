"""Text that a jail or a model wrote, made fit for a terminal."""

from __future__ import annotations

import re

# Escape sequences could retitle a window, fill the clipboard or repaint what a user reads. Tab and newline
# stay; a carriage return stays for progress bars. C1 controls act as escapes on some terminals.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` with control characters shown as `\\x1b` and their kind, and lone surrogates as `?`."""
    shown = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return shown.encode("utf-8", "replace").decode("utf-8")
