"""Pickles whose large buffers are beside the stream: their layout, the same on both sides of the wall.

The caller of `loads` decides to take the risk: a jail, or a client that requested it by name.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, Final

from cenote_worker.process.pristine import BUILTINS, own_builtins
from cenote_worker.transport.content import Content

__builtins__ = BUILTINS

OUT_OF_BAND = 16 * 1024
"""Bytes. Smaller buffers cost less inside the stream than as a separate part."""

_NEWER: Final = "numpy._core."

KeepInBand = Callable[[pickle.PickleBuffer], bool]
"""A pickler's `buffer_callback`: whether the buffer goes into the stream."""


def dumps(
    pickle_to: Callable[[io.BytesIO, KeepInBand], None],
    already: Callable[[memoryview, list[memoryview]], Content | None] = lambda _stream, _large: None,
) -> Content:
    """What `pickle_to(stream, buffer_callback)` wrote, and the buffers that it set aside: copied once, here.

    already: the content of stream and buffers if there is memory that has it.
    """
    large: list[memoryview] = []
    stream = io.BytesIO()

    pickle_to(stream, setting_aside(large))
    return already(stream.getbuffer(), large) or Content.pack([stream.getbuffer(), *large])


def setting_aside(large: list[memoryview]) -> KeepInBand:
    """A callback that appends large buffers to the list, instead of writing them to the stream."""

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous: numpy copies it into the stream
            return True
        if view.nbytes < OUT_OF_BAND:
            return True
        large.append(view)
        return False

    return keep_in_band


@own_builtins()
def loads(content: Content) -> object:
    """The pickled object; its large buffers are this process's private pages of the sealed memory."""
    stream, *buffers = content.unpack()
    try:
        return pickle.loads(stream, buffers=buffers)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(_NEWER):
            raise
    stream, *buffers = content.unpack()
    return _OlderNumpy(io.BytesIO(stream), buffers=buffers).load()


class _OlderNumpy(pickle.Unpickler):
    """For arrays that numpy 2 has pickled, where numpy is 1: a module of the former has another name in the latter.

    In the other direction numpy itself knows the old names.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(_NEWER):
            module = f"numpy.core.{module.removeprefix(_NEWER)}"
        return super().find_class(module, name)
