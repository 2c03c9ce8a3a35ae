"""The result of one sample, and how it is sent from the process that took it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

Outcome = Literal["measured", "not offered", "not installed", "failed"]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One measure of one contender in one round.

    figures: the measured values, empty unless `outcome` is `measured`. reason: why there are none.
    """

    round: int
    measure: str
    contender: str
    outcome: Outcome
    figures: dict[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A driver's one line: a sample without the fields that only its session has."""

    outcome: Outcome
    figures: dict[str, float] = field(default_factory=dict)
    reason: str = ""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Answer:
        return cls(**json.loads(line))
