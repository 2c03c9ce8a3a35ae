"""Substitutes for terminal functions, in a place without a terminal."""

from __future__ import annotations

import os
import sys
from typing import Never

from cenote_worker.jail.rendering.bounded_text import bounded_str, shorten
from cenote_worker.jail.rendering.signatures import class_text, is_record_class
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

NO_TERMINAL = "there is no terminal here; assign the value to a variable, or ask for it in your reply"

_HELP_CHARS = 6_000
_NO_SUBJECT = object()
_print = print
_input = input
_sys = sys
_fstat = os.fstat


class Input:
    """Replaces `input`: reads from a stream that a program has put in place of stdin since this was made.

    Otherwise it fails at once, instead of waiting for input that cannot come.
    """

    def __init__(self) -> None:
        self._stdin, self._file = sys.stdin, _file_of(0)

    def __call__(self, prompt: object = "", /) -> str:
        if _sys.stdin is not self._stdin or _file_of(0) != self._file:
            return _input(prompt)
        asked = bounded_str(prompt, 200).strip()
        what = f"input({asked!r}) cannot be answered" if asked else "no input()"
        raise EOFError(f"{what}: {NO_TERMINAL}")


def _file_of(descriptor: int) -> tuple[int, int] | None:
    try:
        found = _fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def refuse_debugger(*_args: object, **_options: object) -> Never:
    """Replaces `breakpoint`."""
    raise RuntimeError("no breakpoint(): there is no terminal to debug from; print what you want to see")


def leave_cell(code: object = None, /) -> Never:
    """Replaces `exit` and `quit`, which would close stdin too. Ends the cell, not the runtime."""
    raise SystemExit(code)


def print_help(subject: object = _NO_SUBJECT, /) -> None:
    """Replaces `help`: plain, bounded, never interactive."""
    if subject is _NO_SUBJECT:
        _print("help(x) prints the documentation of x")
        return
    if isinstance(subject, type) and is_record_class(subject):  # pydoc needs 6,000 characters
        _print(class_text(subject))
        return
    import pydoc  # 20 ms, and few cells ask for help

    text = pydoc.render_doc(subject, "Help on %s", renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    _print(shorten(text, _HELP_CHARS))
