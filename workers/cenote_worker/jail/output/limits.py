"""Limits on what a cell may return."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLimits:
    """Bounds on what leaves the kernel as text or images. Characters, unless a name says bytes.

    value_chars: repr of a last expression. reply_chars: text given to `reply`.
    traceback_chars, message_chars: the two forms of an error.
    display_chars, display_bytes: one text and one binary representation of a displayed object.
    displays: displayed objects per cell; further ones are dropped with a note.
    cell_sources: how many of the latest cells keep their source for tracebacks and `inspect.getsource`.
    """

    value_chars: int = 20_000
    reply_chars: int = 100_000
    traceback_chars: int = 8_000
    message_chars: int = 2_000
    display_chars: int = 200_000
    display_bytes: int = 4 * 2**20
    displays: int = 50
    cell_sources: int = 500
