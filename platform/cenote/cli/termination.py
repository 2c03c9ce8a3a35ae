"""SIGTERM and SIGHUP, which end a command as Ctrl-C does: what it has running elsewhere is ended too."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Came instead of Ctrl-C: from `timeout`, a pipeline's runner, a service manager, a terminal that was closed."""


@contextmanager
def terminable() -> Iterator[None]:
    """These signals raise Terminated meanwhile, where they would have ended the process on the spot.

    One that whoever started the command has it ignore, as `nohup` does, is ignored.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    taken = [one for one in _SIGNALS if on_main_thread and signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, _terminate)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)


def _terminate(*_: object) -> NoReturn:
    raise Terminated
