"""Files that were closed, as a `with` leaves them in a namespace: they have a name and a mode, and nothing else."""

from __future__ import annotations

import io
import os
from typing import Any, Final

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

_KINDS: Final = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)


def reduced_closed_file(obj: Any) -> tuple[Any, ...] | None:
    """How to pickle one; None for anything else."""
    if type(obj) not in _KINDS or not obj.closed or type(obj.name) is not str:
        return None
    if type(obj) is io.TextIOWrapper:
        return closed_file, (obj.name, obj.mode, -1, obj.encoding, obj.errors)
    return closed_file, (obj.name, obj.mode, 0 if type(obj) is io.FileIO else -1)


def closed_file(
    name: str, mode: str, buffering: int, encoding: str | None = None, errors: str | None = None
) -> Any:
    """Nothing of that name is opened."""
    file = open(name, mode, buffering, encoding, errors, opener=_nowhere)  # noqa: SIM115  (has an opener)
    file.close()
    return file


def _nowhere(_name: str, _flags: int) -> int:
    return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
