"""An asyncio event loop in a copy of the process that made it.

The kernel's list of awaited descriptors (epoll) is shared with the original, and so is the pair of sockets by which
a loop is woken. What the original registers afterwards would wake the copy for ever, and a wake-up could be taken by
the wrong one.
"""

from __future__ import annotations

import asyncio
import selectors
from contextlib import suppress
from typing import Protocol, cast

from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS


class _Loop(Protocol):
    """What `asyncio.BaseSelectorEventLoop` is made of, the same since Python 3.4."""

    _selector: selectors.BaseSelector

    def _close_self_pipe(self) -> None: ...

    def _make_self_pipe(self) -> None: ...


def make_own(loop: asyncio.AbstractEventLoop) -> None:
    """Give the loop a list and a wake-up of its own; what it waits for stays. Loops of other kinds are left alone."""
    if not isinstance(loop, asyncio.SelectorEventLoop) or loop.is_closed() or loop.is_running():
        return
    inner = cast(_Loop, loop)
    shared, own = inner._selector, selectors.DefaultSelector()
    for key in list(shared.get_map().values()):
        with suppress(OSError):  # closed meanwhile: there is nothing to wait for
            own.register(key.fileobj, key.events, key.data)
    inner._selector = own  # from here on nothing of the loop's reaches the original's list
    inner._close_self_pipe()
    inner._make_self_pipe()
    shared.close()
