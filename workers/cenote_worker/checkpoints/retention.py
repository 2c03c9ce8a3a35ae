"""What is stored of a platform's runtime, and when its jail ends for lack of calls. Values only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cenote_security.options import Options, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention(Options):
    """See CreateRuntimeRequest, whose fields have the same names."""

    durable: bool = option(
        False,
        flag="durable",
        help="store all that a call has changed before it is answered: nothing is lost, whatever dies",
    )
    hibernate_after: float = option(
        0.0,
        flag="hibernate-after",
        help="end its jail, with its state stored, when nothing calls it for so long; the next call has it again",
        unit="seconds",
        at_least=0,
        none="never",
    )

    def __post_init__(self) -> None:
        self.checked().raise_all()

    @property
    def rests_after(self) -> float:
        """Seconds without any call after which its jail ends; infinite for never."""
        return self.hibernate_after or math.inf

    @property
    def stores(self) -> bool:
        """Whether states are ever stored, besides the record."""
        return self.durable or self.rests_after < math.inf

    def of_branch(self, lease: float) -> Retention:
        """The retention of a branch of such a runtime: a runtime that ends by itself is not stored."""
        return NOTHING_STORED if lease else self

    def or_else(self, default: Retention) -> Retention:
        """The same, with the platform's default where hibernation is not set."""
        if self.rests_after < math.inf:
            return self
        return Retention(durable=self.durable, hibernate_after=default.hibernate_after)


NOTHING_STORED: Final = Retention()
