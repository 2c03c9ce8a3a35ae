"""Trying one thing in a throwaway child, so that whatever it does to its process is gone afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from cenote_security.walls.facilities import Facility
from cenote_security.walls.wall import WallError

Attempt = Callable[[], str]
"""Does the thing and says in a few words what was found. Raises OSError or WallError when it is not to be had."""


def attempt(name: str, what: Attempt, remedy: str = "") -> Facility:
    """Try `what` in a child. The process must be single-threaded."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _report(what, write_end)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        report = pipe.read()
    _, status = os.waitpid(child, 0)
    if not report:
        report = json.dumps([False, f"the attempt ended with {os.waitstatus_to_exitcode(status)}"]).encode()
    available, detail = json.loads(report)
    return Facility(name=name, available=available, detail=detail, remedy="" if available else remedy)


def _report(what: Attempt, pipe: int) -> None:
    """Never returns: the child ends here whatever happens."""
    try:
        try:
            answer = [True, what()]
        except (OSError, WallError) as error:
            answer = [False, str(error)]
        os.write(pipe, json.dumps(answer).encode())
    finally:
        os._exit(0)
