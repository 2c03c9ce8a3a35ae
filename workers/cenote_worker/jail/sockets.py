"""Sockets for code that runs beside cells. A cell may have replaced those of `socket`: to keep a test offline,
say."""

from __future__ import annotations

import _socket
import socket
from typing import Final

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_pair: Final = _socket.socketpair
_LOCAL: Final = int(socket.AF_UNIX)
_MADE_ANEW: Final = frozenset(("__new__", "__dict__", "__weakref__", "__module__", "__doc__", "__slots__"))


class _Own(socket.socket):
    """A class with its own methods, independent of changes to `socket.socket`."""

    __slots__ = ()


for _key, _method in {**vars(_socket.socket), **vars(socket.socket)}.items():
    if _key not in _MADE_ANEW:
        setattr(_Own, _key, _method)


def socket_of(descriptor: int) -> socket.socket:
    """Raises OSError if the descriptor is no socket."""
    return _Own(fileno=descriptor)


def pair(kind: int) -> tuple[socket.socket, socket.socket]:
    """Two local sockets, connected to each other."""
    here, there = _pair(_LOCAL, kind, 0)
    return _Own(fileno=here.detach()), _Own(fileno=there.detach())
