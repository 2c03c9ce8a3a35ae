"""What a client wishes a platform to keep of its runtime. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cenote_security.options import option
from cenote_worker.retention import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Retention):
    """With what a client that joins it puts up with. See CreateRuntimeRequest."""

    partial: bool = option(False, help="join it without what cannot be given back of it")


NOT_KEPT: Final = Kept()
