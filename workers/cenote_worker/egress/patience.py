"""How long the proxy waits for whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds. head, hello: until a request, a ClientHello is complete. dial: until a name is looked up and answers.

    idle: without a byte in either direction.
    """

    head: float = 10.0
    hello: float = 10.0
    dial: float = 20.0
    idle: float = 120.0


PATIENCE = Patience()
