"""When a snapshot costs a running cell too much, so that it had better be given up. Pure: samples in, verdicts out.

After a fork, whoever first writes to a page that the copy has too pays for copying it: 3 to 5 µs. A cell that sweeps
a gigabyte in place pays a second for that, many times what its work takes. Whoever watches the cell ends the copy
then: a page without a second owner is no longer copied, and what was spared is most of the tax.

What can be seen from outside at little cost are page faults. A fault makes a new page resident or copies one that
was, so the faults of a short time less the growth in that time are the copies. Memory that is given back and asked
for again looks the same. So this is a suspicion only, and what is still shared, of which samples tell in a
millisecond or two (`sharing.py`), decides. The process's own system time would be cheaper and is no measure: where
the kernel samples it by ticks, a sweep of seconds was seen with none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cenote_worker.zygote.sharing import Sharing

COPY_SECONDS: Final = 4e-6
"""What one copied page costs, small pages and huge ones alike, which are split: the middle of what was measured."""

GRACE_SECONDS: Final = 0.02
"""Tax that no cell is spared: without a snapshot a crash costs the whole state. What the kernel does around each cell
writes to a thousand pages, and a cell that imports something to some thousands, which takes it a while.
"""

SHARE: Final = 0.2
"""The part of a cell's time above which its tax is too much. A cell may take 1.3 times as long as without a snapshot,
and giving up the copy takes its time too."""

ORDINARY: Final = 1000
"""Pages that are written to around any cell, and say nothing about this one."""

MOST: Final = 0.5
"""The part of a cell's time above which it is taken to do little but write to what it began with. Grace is not
waited for then, if what it would pay by going on is more than grace."""

EARLIEST: Final = 0.002
"""Seconds of tax, but for the ordinary, of which nothing can be said yet."""

LOOKED_FOR: Final = 0.0005
"""The same, behind which it is worth while to look whether they lie in one place."""

SWEPT: Final = 0.0015
"""Seconds of tax in one large area, of which most is still to come, that are taken for the beginning of a sweep. What
is written to around any cell does not lie there."""

Verdict = Literal["keep", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A running process, seen from outside.

    elapsed: seconds since its cell began, without those in which it waited for a processor (the second number in
    `/proc/<pid>/schedstat`): on a busy machine they would hide any tax. faults: minor page faults, ever.
    resident: pages of its own memory, without those of files.
    """

    elapsed: float
    faults: int
    resident: int


class SnapshotTax:
    """The tax of one cell. To be fed each millisecond or two: what happens in between is taken for one kind."""

    def __init__(self, begin: Sample) -> None:
        """begin: seen when the cell begins, after the copy was made: all that is resident is shared then."""
        self._last = begin
        self._suspected = self._cleared = 0

    def see(self, sample: Sample) -> Verdict:
        """`check`: find out what was copied, and ask `is_too_much`."""
        faults = sample.faults - self._last.faults
        grown = max(0, sample.resident - self._last.resident)
        self._suspected += max(0, faults - grown)
        self._last = sample
        is_news = self._suspected > 2 * self._cleared
        suspicious = self._is_past_grace(self._suspected) or self._may_sweep(self._suspected)
        return "check" if is_news and suspicious else "keep"

    def is_too_much(self, found: Sharing) -> bool:
        """Whether to give the copy up now.

        If not, there is no reason to check again before twice as much is suspected: checks cost the cell time too.
        """
        self._cleared = self._suspected
        copied = min(self._suspected, found.copied)
        goes_on = found.exposed * COPY_SECONDS > GRACE_SECONDS
        return self._is_past_grace(copied) or (goes_on and self._is_most(copied)) or self._sweeps(found)

    def _is_past_grace(self, copies: int) -> bool:
        return copies * COPY_SECONDS > max(GRACE_SECONDS, SHARE * self._last.elapsed)

    def _is_most(self, copies: int) -> bool:
        return (copies - ORDINARY) * COPY_SECONDS > max(EARLIEST, MOST * self._last.elapsed)

    def _may_sweep(self, copies: int) -> bool:
        return (copies - ORDINARY) * COPY_SECONDS > max(LOOKED_FOR, SHARE * self._last.elapsed)

    def _sweeps(self, found: Sharing) -> bool:
        swept = min(self._suspected, found.swept)
        return swept * COPY_SECONDS > max(SWEPT, SHARE * self._last.elapsed)
