"""Values across the wall: a typed, bounded encoding, made by hostile code and rebuilt without unpickling."""

from cenote_security.values.decoder import decode
from cenote_security.values.encoder import Encoded, encode
from cenote_security.values.instances import ExceptionRecord
from cenote_security.values.node import DEFAULT_LIMITS, Limits

__all__ = ["DEFAULT_LIMITS", "decode", "Encoded", "encode", "ExceptionRecord", "Limits"]
