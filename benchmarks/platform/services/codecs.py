"""How the plain gRPC services encode values."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod

import cloudpickle

from benchmarks.runtime.contender import NotOfferedError

JSON_LIMIT = 32 * 10**6
"""Largest array in bytes that is sent as JSON: it grows threefold, and tenfold as Python numbers."""


class Codec(ABC):
    @abstractmethod
    def encode(self, value: object) -> bytes:
        """Raises NotOfferedError for values that the format cannot encode."""

    @abstractmethod
    def decode(self, body: bytes) -> object:
        """Decodes the value."""


class Cloudpickle(Codec):
    def encode(self, value: object) -> bytes:
        body: bytes = cloudpickle.dumps(value)
        return body

    def decode(self, body: bytes) -> object:
        value: object = cloudpickle.loads(body)
        return value


class Json(Codec):
    """Text, numbers and arrays of numbers, which JSON has types for."""

    def encode(self, value: object) -> bytes:
        return json.dumps(value, default=_listed).encode()

    def decode(self, body: bytes) -> object:
        value = json.loads(body)
        if not isinstance(value, list):
            return value
        import numpy as np  # imported here, so that a server that only runs cells starts without it

        return np.array(value)


def _listed(value: object) -> object:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.nbytes <= JSON_LIMIT:
        return value.tolist()
    raise NotOfferedError(f"{type(value).__name__} of this size in JSON")


CODECS: dict[str, Codec] = {"cloudpickle": Cloudpickle(), "json": Json()}
