"""Units for counting work, where time would depend on the machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from cenote.harness import ExecutionState


def calls(question: Callable[[ExecutionState], object], state: ExecutionState) -> int:
    """Calls of Python and C functions while the question is answered."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    gc.freeze()  # garbage of other tests must not be finalized here
    sys.setprofile(note)
    try:
        question(state)
    finally:
        sys.setprofile(None)
        gc.unfreeze()
        gc.enable()
    return count
