"""The arguments of a call, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cenote_security.rules.reading.value import Value


@dataclass(slots=True)
class Arguments:
    """What a call passes. Stars are spread out as far as they are known; an unknown rest is one unknown argument.

    more: whether there are keywords (`**options`) whose names are not known.
    """

    positional: tuple[Value, ...] = ()
    named: Mapping[str, Value] | None = None
    more: bool = False

    def get(self, index: int, name: str = "") -> Value:
        """The argument at the position or of the name, unknown when the call has none."""
        if index < len(self.positional):
            return self.positional[index]
        return self.named.get(name) if self.named and name else None

    def has(self, index: int, name: str = "") -> bool:
        return index < len(self.positional) or bool(self.named and name in self.named)

    def values(self) -> tuple[Value, ...]:
        return (*self.positional, *(self.named or {}).values())
