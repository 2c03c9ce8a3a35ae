"""Memory by its address: of which a library tells nothing else, as bytes; and the address of bytes."""

from __future__ import annotations

import ctypes

from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS


def memory_at(address: int, size: int, owner: object) -> memoryview:
    """A view, which keeps the owner of the memory."""
    if not size:
        return memoryview(b"")
    array = (ctypes.c_ubyte * size).from_address(address)
    array.owner = owner  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def address_of(memory: memoryview) -> int:
    """Where writable memory begins."""
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
