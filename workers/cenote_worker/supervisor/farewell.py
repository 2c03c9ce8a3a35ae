"""What becomes of requests that a jail does not come to answer any more."""

from __future__ import annotations

from typing import Final

from cenote_security.errors import JailLostError
from cenote_worker.supervisor.autopsy import Death
from cenote_worker.supervisor.clock import CellClock
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import JailRequest

_CALL: Final = "a call ran out of time, ignored the interrupt and was killed"


def ignored(request: JailRequest, clock: CellClock, now: float) -> Death:
    """The sentence of a request that was interrupted and went on."""
    if not clock.expired:
        return Death(reason="interrupt")
    text = "" if request.ask is Ask.EXECUTE else _CALL
    return Death(reason="time", text=text, detail=f"used {now - clock.started:.1f} s of {clock.timeout:g} s")


def decline(request: JailRequest, death: Death) -> None:
    """A request that came too late, or waited behind the one that was the last."""
    request.dispose()
    if request.ask is Ask.EXECUTE:
        request.listener.done(death.before(request.step, request.seat.author))
    else:
        request.listener.done(JailLostError(death.describe()))


def expired(limit: float | None) -> Death:
    """Of a jail whose runtime had so many seconds."""
    return Death(reason="time", text=f"the runtime's time of {limit:g} s was over and it was ended")
