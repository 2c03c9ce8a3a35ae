"""Values into and out of this jail as pickles. Pickles are opened here, in the jail, and nowhere else."""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle

from cenote_worker.content import Content
from cenote_worker.in_jail.compiled_schemas import reduced_schema

OUT_OF_BAND = 16 * 1024
"""Bytes. Smaller buffers cost less inside the stream than as a part of their own."""


def load(content: Content) -> object:
    """The pickled object; its large buffers are this process's private pages of the sealed memory."""
    stream, *buffers = content.unpack()
    return pickle.loads(stream, buffers=buffers)


def dump(value: object) -> Content:
    """Pickles by value; large buffers are copied once. Raises whatever the value's own pickling raises."""
    large: list[memoryview] = []
    stream = io.BytesIO()

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous: numpy copies it into the stream
            return True
        if view.nbytes < OUT_OF_BAND:
            return True
        large.append(view)
        return False

    _Pickler(stream, protocol=5, buffer_callback=keep_in_band).dump(value)
    return Content.pack([stream.getbuffer(), *large])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        schema = reduced_schema(obj)
        return super().reducer_override(obj) if schema is None else schema
