"""Pickles of this jail's values, for other jails to open."""

from __future__ import annotations

import functools
import io
import pickle
from types import CodeType
from typing import Any

import cloudpickle

from cenote_worker.jail.libraries.pydantic_schemas import reduced_schema
from cenote_worker.jail.values.pickle_reducers import CACHED, reduced_property, refuse_cache
from cenote_worker.pickling.buffers_unsafe import KeepInBand, dumps
from cenote_worker.pickling.classes_unsafe import reduced_class, reduced_late_type
from cenote_worker.pickling.code_objects import reduced_code
from cenote_worker.pickling.tensors_unsafe import reduced_tensor
from cenote_worker.transport.content import Content


def dump(value: object) -> Content:
    """Pickles by value. Raises any error of the value's own pickling."""

    def pickle_to(stream: io.BytesIO, keep_in_band: KeepInBand) -> None:
        _Pickler(stream, protocol=5, buffer_callback=keep_in_band).dump(value)

    return dumps(pickle_to)


def sent_class(tracked: str, pickled: bytes) -> type:
    """A class that the client sent by value before: the existing class if it is still known.

    tracked: cloudpickle's name for it. Processes that were restored may not know it.
    """
    known = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracked)
    cls: type = known if isinstance(known, type) else pickle.loads(pickled)
    return cls


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is CACHED and (obj.__module__ == "__main__" or "<locals>" in obj.__qualname__):
            refuse_cache(obj)
        if type(obj) is functools.cached_property:
            return reduced_property(obj)
        if type(obj) is CodeType:
            return reduced_code(obj)
        reduced = reduced_schema(obj) or reduced_late_type(obj) or reduced_tensor(obj, whole=False)
        if reduced is None:
            reduced = super().reducer_override(obj)
        return reduced_class(obj, reduced, numbered=True) if isinstance(obj, type) else reduced
