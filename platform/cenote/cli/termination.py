"""SIGTERM, which ends a command as Ctrl-C does: what it has running elsewhere is ended too."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """Came instead of Ctrl-C: from `timeout`, a pipeline's runner, a service manager."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises Terminated meanwhile, where it would have ended the process on the spot."""
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(*_: object) -> NoReturn:
    raise Terminated
