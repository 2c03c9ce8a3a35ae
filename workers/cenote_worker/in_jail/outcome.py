"""What running one cell gave, as the kernel knows it."""

from __future__ import annotations

from dataclasses import dataclass

from cenote_worker.results import ErrorInfo, Notice
from cenote_worker.trace import StepTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """libraries: that a cell has imported, or has had objects of. words: names and attributes in its code."""

    libraries: frozenset[str]
    words: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOutcome:
    """The end of one cell. Output and displays went to the sink while it ran.

    value: bounded repr of a last bare expression; None for None, for a statement and after `;`.
    error: set exactly when success is False.
    reply: the last text given to `reply(...)`, None unless the cell succeeded.
    duration: seconds of wall time.
    notices: what other authors did to names that this one relies on.
    trace: what it read and wrote; None where nothing watches.
    uses: what its code uses; None where it may do something else when it runs again.
    bound_only: names that it has written, if it has certainly done nothing else but to files of the working
    directory; None if it may have.
    """

    success: bool
    value: str | None = None
    error: ErrorInfo | None = None
    reply: str | None = None
    duration: float = 0.0
    notices: tuple[Notice, ...] = ()
    trace: StepTrace | None = None
    uses: Uses | None = None
    bound_only: frozenset[str] | None = None
