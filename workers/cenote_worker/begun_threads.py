"""Threads that are begun for one piece of work."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cenote_security.errors import UnavailableError


def begin_thread(name: str, work: Callable[[], None]) -> None:
    """Raises UnavailableError where the machine has no room for one more; its caller sees to it that nobody waits for
    what does not begin.
    """
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        raise UnavailableError("this machine has no thread left; nothing ran, try again") from error
