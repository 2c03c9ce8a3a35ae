"""All kinds of nodes, and who writes an object of which class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.values import (
    arrays,
    arrow,
    containers,
    frames,
    indexes,
    instances,
    pandas_arrays,
    pandas_scalars,
    polars_frames,
    scalars,
    times,
)
from cenote_security.values.node import Kind, Node, Write

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder

KINDS: dict[str, Kind] = {
    **containers.KINDS,
    **scalars.KINDS,
    **times.KINDS,
    **instances.KINDS,
    **arrays.KINDS,
    **arrow.KINDS,
    **pandas_scalars.KINDS,
    **pandas_arrays.KINDS,
    **indexes.KINDS,
    **frames.KINDS,
    **polars_frames.KINDS,
}


def writers() -> dict[type, Write]:
    """Who writes objects of exactly these classes."""
    return {
        **containers.WRITERS,
        **scalars.WRITERS,
        **times.WRITERS,
        **arrays.writers(),
        **arrow.writers(),
        **pandas_scalars.writers(),
        **indexes.writers(),
        **frames.writers(),
        **polars_frames.writers(),
    }


def fallback(encoder: Encoder, value: object) -> Node:
    """The node of an object whose exact class nobody claimed: of a family of classes, or of the user's own."""
    if arrays.is_scalar(value):
        return arrays.write_scalar(encoder, value)
    if pandas_arrays.is_array(value):
        return pandas_arrays.write_array(encoder, value)
    if arrow.is_array(value):
        return arrow.write_array(encoder, value)
    return instances.write(encoder, value)
