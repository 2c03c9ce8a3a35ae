"""One call of a client on its way: how it is carried out, and what is left to do when nobody waits for it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from cenote_proto.v1 import runtime_pb2
from cenote_worker.serving.listeners import CellListener
from cenote_worker.supervisor.requests import Withdraw


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """A call that its runtime has not answered.

    number: as its client counts. key: what it is known by when it is sent again; cells and patches always have one.
    run: sends it to the runtime; what it returns is the answer already. It blocks where there is no jail yet.
    at_once: does not wait behind other calls. blocks: whether running it now blocks in any case; asked right before.
    carries: its answer may be as large as the policy allows.
    dispose: lets go of what it owns, if it is never run. cell: hears of it, if it is one.
    """

    number: int
    key: str = ""
    run: Callable[[], runtime_pb2.ServerFrame | None]
    at_once: bool = False
    blocks: Callable[[], bool] = lambda: False
    carries: bool = False
    dispose: Callable[[], None] | None = None
    cell: CellListener | None = None
    withdraw: Withdraw | None = None
    """Set when a cell or a patch has been sent."""
    withdrawn: bool = False
    """Its client wants no answer any more."""
    settled: bool = False
    """The runtime has answered."""

    def drop(self) -> None:
        """It is never run."""
        if self.dispose is not None:
            self.dispose()


def unnamed() -> str:
    """A key for what has to have one."""
    return f"unnamed {secrets.token_hex(8)}"
