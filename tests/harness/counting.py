"""What work is counted in, where time would tell more of the machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from cenote.harness import ExecutionState


def calls(question: Callable[[ExecutionState], object], state: ExecutionState) -> int:
    """Python's and C's, made while it is answered."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    gc.freeze()  # what somebody might finalize now is other tests' and not asked for
    sys.setprofile(note)
    try:
        question(state)
    finally:
        sys.setprofile(None)
        gc.unfreeze()
        gc.enable()
    return count
