"""What a client wishes a platform to keep of its runtime. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """durable: what a call has changed is stored before it is answered. hibernate_after: seconds without any call.

    partial: join it without what cannot be given back of it. See CreateRuntimeRequest.
    """

    durable: bool = False
    hibernate_after: float = 0.0
    partial: bool = False


NOT_KEPT: Final = Kept()
