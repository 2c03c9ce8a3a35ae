"""How many threads this process has, also where the walls do not let it list them."""

from __future__ import annotations

import os
from typing import Final

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

TASKS: Final = "/proc/self/task"
"""A folder for each."""

_LINKS_OF_A_FOLDER: Final = 2
"""Each folder in it is one more."""

_stat = os.stat


def thread_count() -> int:
    """Python's, and those of libraries. Raises OSError."""
    return _stat(TASKS).st_nlink - _LINKS_OF_A_FOLDER
