"""What may be said of a variable, as a message: written alike by a worker and by the client."""

from __future__ import annotations

from cenote_proto.scalars import unsigned, utf8_text
from cenote_proto.v1 import jail_pb2
from cenote_worker.results import VariableInfo


def fill(message: jail_pb2.VariableInfo, info: VariableInfo) -> None:
    """Says `info` in `message`. Reading it back is the edge's business, since it may come from a jail."""
    message.name, message.type = utf8_text(info.name), utf8_text(info.type)
    message.size, message.description = unsigned(info.size), utf8_text(info.description)
    if info.shape is not None:
        message.has_shape = True
        message.shape.extend(map(unsigned, info.shape))
