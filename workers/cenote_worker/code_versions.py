"""Code objects between processes: bytecode of one version of Python, read by another, does anything at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_HERE = sys.version_info[:2]


class ForeignCodeError(TypeError):
    """Functions and classes come from another version of Python than the one that is to run them."""

    def __init__(self, theirs: tuple[int, int]) -> None:
        super().__init__(theirs)
        self.theirs = theirs

    def __str__(self) -> str:
        there, here = (".".join(map(str, version)) for version in (self.theirs, _HERE))
        return (
            f"it holds functions or classes of Python {there}, which Python {here} cannot run; use the same version "
            f"on both sides, define them in a cell, or keep them in the client with Function(..., host=True)"
        )


def of_this_version(reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """The reduction of a code object, which only this version of Python takes."""
    make, arguments = reduced
    return made_here, (_HERE, make, *arguments)


def made_here(version: tuple[int, int], make: Callable[..., CodeType], *arguments: Any) -> CodeType:
    """Raises ForeignCodeError."""
    if version != _HERE:
        raise ForeignCodeError(version)
    return make(*arguments)
