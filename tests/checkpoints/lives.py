"""One life after the other: a child for each line of the input, to be killed at any moment."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def live(life: Callable[[str], None]) -> None:
    """Prints the pid of each child, and when it is over. life: gets the line; it should not end by itself."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                life(line)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        print("pid", child, flush=True)
        os.waitpid(child, 0)
        print("over", flush=True)
