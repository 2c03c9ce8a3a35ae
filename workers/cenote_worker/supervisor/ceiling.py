"""How many jails one process may have at once: a loop that forgets to close its runtimes should hear of it."""

from __future__ import annotations

import os
import threading
from typing import Final

from cenote_security.errors import UnavailableError, UsageError

SETTING: Final = "CENOTE_MAX_RUNTIMES"

DEFAULT: Final = 4096
"""Each has some processes, a dozen descriptors and tens of megabytes: a machine that holds more is told so."""


class Ceiling:
    """Counts the jails of a process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._most = _most()
        self._lock = threading.Lock()
        self._taken = 0

    def take(self) -> None:
        """Raises UnavailableError when there is no place left."""
        with self._lock:
            if self._taken >= self._most:
                raise UnavailableError(
                    f"this process runs {self._taken} runtimes already, and {SETTING}={self._most} is its "
                    f"ceiling; close some, or raise it"
                )
            self._taken += 1

    def give(self) -> None:
        with self._lock:
            self._taken -= 1


def _most() -> int:
    text = os.environ.get(SETTING, str(DEFAULT))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{SETTING} must be a positive number, not {text!r}")
    return int(text)
