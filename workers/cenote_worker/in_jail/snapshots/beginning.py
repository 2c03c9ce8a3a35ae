"""The state that a runtime begins with, which the warden can have made anew. See `zygote.origin`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from cenote_worker.in_jail import plain_json
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.snapshots.line import Message, number
from cenote_worker.settings import WorkerSettings

__builtins__ = BUILTINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """is_kept: whether this is the first worker, whose beginning can be gone back to. wanted: what was said to one
    that is to go on from there.
    """

    is_kept: bool = False
    wanted: Message | None = None

    @classmethod
    def told(cls, settings: WorkerSettings) -> Self:
        if settings.wanted:
            return cls(wanted=plain_json.loads(settings.wanted))
        return cls(is_kept=settings.warden >= 0)

    @property
    def is_parked(self) -> bool:
        """Whether it is wanted for the state that a worker was at last: its files are in their place."""
        return bool((self.wanted or {}).get("parked"))

    @property
    def files(self) -> int:
        """The version of the working directory that goes with it. Raises ValueError."""
        return number(self.wanted or {}, "files")
