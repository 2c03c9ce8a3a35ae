"""Arrays cross from a process with numpy 2 to one with numpy 1, whose modules have other names."""

from __future__ import annotations

import io
import pickle
import sys

import numpy as np
import pytest

from cenote_worker.pickling.buffers_unsafe import dumps, loads
from cenote_worker.transport.content import Content


def _pickled(value: object) -> Content:
    def to(stream: io.BytesIO, keep: object) -> None:
        pickle.Pickler(stream, protocol=5, buffer_callback=keep).dump(value)  # type: ignore[arg-type]

    return dumps(to)


@pytest.mark.parametrize("count", [3, 10_000])
def test_an_array_where_a_new_module_is_missing(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its former name; including large ones, whose bytes are beside the stream."""
    array = np.arange(count)
    content = _pickled({"a": array})
    monkeypatch.setitem(sys.modules, "numpy._core.numeric", None)  # what an import of it finds
    found = loads(content)
    assert isinstance(found, dict)
    assert np.array_equal(array, found["a"])


def test_another_missing_module_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other module's name is guessed."""
    content = _pickled(np.ma.masked_array([1], [True]))
    monkeypatch.setitem(sys.modules, "numpy.ma.core", None)
    with pytest.raises(ModuleNotFoundError, match=r"numpy\.ma\.core"):
        loads(content)
