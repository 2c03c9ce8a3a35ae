"""All kinds of nodes, and who writes an object of which class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.values import (
    containers,
    instances,
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
}


def writers() -> dict[type, Write]:
    """Who writes objects of exactly these classes.

    A library that was not imported has no objects here, so only imported ones are asked; asking imports nothing.
    """
    return {**containers.WRITERS, **scalars.WRITERS, **times.WRITERS}


def fallback(encoder: Encoder, value: object) -> Node:
    return instances.write(encoder, value)
