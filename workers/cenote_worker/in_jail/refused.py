"""A request that cannot be done."""

from __future__ import annotations

from typing import Final

from cenote_proto.scalars import utf8_text, utf8_texts
from cenote_proto.v1 import jail_pb2
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS

MESSAGE_LIMIT: Final = 4_000
"""Characters of a refusal's text."""


class Refused(Exception):
    """A request that cannot be done, with the reason as data."""

    def __init__(
        self,
        kind: jail_pb2.Refusal.Kind.ValueType,
        name: str = "",
        message: str = "",
        nearest: tuple[str, ...] = (),
    ) -> None:
        super().__init__(kind, name, message)
        self.kind, self.name, self.message, self.nearest = kind, name, message, nearest

    def fill(self, message: jail_pb2.Refusal) -> None:
        """As it is told to the supervisor."""
        message.kind, message.name = self.kind, utf8_text(self.name[:MESSAGE_LIMIT])
        message.message = utf8_text(self.message[:MESSAGE_LIMIT])
        message.nearest.extend(utf8_texts(self.nearest))
