"""All kinds of nodes, and who writes an object of which class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.values import containers, instances, scalars
from cenote_security.values.libraries import arrow, numpy, pandas_arrays, pandas_frames, polars
from cenote_security.values.node import Kind, Node, Write

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

KINDS: dict[str, Kind] = {
    **containers.KINDS,
    **scalars.KINDS,
    **scalars.TIME_KINDS,
    **instances.KINDS,
    **numpy.KINDS,
    **arrow.KINDS,
    **pandas_arrays.SCALAR_KINDS,
    **pandas_arrays.ARRAY_KINDS,
    **pandas_frames.INDEX_KINDS,
    **pandas_frames.FRAME_KINDS,
    **polars.KINDS,
}


def writers() -> dict[type, Write]:
    """Who writes objects of exactly these classes."""
    return {
        **containers.WRITERS,
        **scalars.WRITERS,
        **scalars.TIME_WRITERS,
        **numpy.writers(),
        **arrow.writers(),
        **pandas_arrays.scalar_writers(),
        **pandas_frames.index_writers(),
        **pandas_frames.frame_writers(),
        **polars.writers(),
    }


def fallback(encoder: Encoder, value: object) -> Node:
    """The node of an object whose exact class has no writer: of a family of classes, or of the user's own."""
    if numpy.is_scalar(value):
        return numpy.write_scalar(encoder, value)
    if pandas_arrays.is_array(value):
        return pandas_arrays.write_array(encoder, value)
    if arrow.is_array(value):
        return arrow.write_array(encoder, value)
    return instances.write(encoder, value)
