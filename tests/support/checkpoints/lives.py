"""Successive children, one for each line of the input, to be killed at any moment."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def live(life: Callable[[str], None]) -> None:
    """Prints the pid of each child, and when it has ended. life: gets the line; it should not end by itself."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                life(line)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        say("pid", child)
        os.waitpid(child, 0)
        say("over")


def say(*words: object) -> None:
    """Prints a line in one write: a child may be killed within `print`, with half a line written."""
    os.write(sys.stdout.fileno(), f"{' '.join(map(str, words))}\n".encode())
