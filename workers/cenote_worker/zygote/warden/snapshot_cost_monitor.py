"""Measures what a running cell pays for the copy made before it, and decides when that is too much, so that the copy
is given up.

After a fork, the first write to a page that the copy shares costs copying it: 3 to 5 µs. A cell that sweeps a
gigabyte in place pays a second for that, many times what its work takes. Once the copy has ended, pages without a
second owner are no longer copied, which saves most of the tax. The worker starts a timer with each cell and stops it
at its end: a short cell costs the warden nothing.

Page faults can be seen cheaply from outside. A fault makes a new page resident or copies a shared one, so the faults
of a short time less the growth in that time are the copies. Memory that is freed and allocated again looks the same.
So this is a suspicion only, and samples of the page table, which take a millisecond or two, decide. The process's
own system time would be cheaper but is unreliable: where the kernel samples it by ticks, a sweep of seconds was seen
with none. The kernel's own sum (`smaps_rollup`) reads each page: some milliseconds per gigabyte, in which a sweeping
cell pays for a thousand pages more. The copy's memory map is used: it is frozen, so it has what the cell began with.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from cenote_worker.jail.process.proc_info import private_memory
from cenote_worker.jail.snapshots.protocol import FIRST_PULSE, PULSE_INTERVAL
from cenote_worker.zygote.descriptors import PULSE

SAMPLES: Final = 1024
"""Pages looked at: a microsecond each, and enough to see three megabytes of a gigabyte."""

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_LEAST: Final = 256
"""Pages. Smaller areas are ignored."""

_LARGE: Final = 8192
"""Pages of an area that counts as one object, such as an array. All smaller ones count together: small objects."""

_SIDE_BY_SIDE: Final = 3
"""Samples in a row, all copied, that count as contiguous pages."""

_FAR_APART: Final = 32
"""Samples closer than this are read with all entries in between: a read call costs as much as some sixty entries."""

_ENTRY: Final = 8
_PRESENT: Final = 0x80
_EXCLUSIVE: Final = 0x01
"""Bits 63 and 56 of an entry of `/proc/<pid>/pagemap`: of its last byte, the kernel's numbers being little-endian."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSharing:
    """Pages, estimated. copied: pages of the copy that the worker has replaced by its own.

    exposed: pages of the same large areas, or of all small ones, that are still shared, and would be copied if the
    cell went on there. swept: of the copied, contiguous ones in large areas that are mostly still shared: a loop over
    an array writes so, and changes to scattered objects in a large heap do not.
    """

    copied: int = 0
    exposed: int = 0
    swept: int = 0

    def __add__(self, other: PageSharing) -> PageSharing:
        return PageSharing(
            copied=self.copied + other.copied,
            exposed=self.exposed + other.exposed,
            swept=self.swept + other.swept,
        )


def sharing(worker: int, copy: int) -> PageSharing:
    """Of two processes of which one is a frozen copy of the other; nothing of one that is gone."""
    return shared_of(areas(copy), worker)


def shared_of(memory: Sequence[range], worker: int) -> PageSharing:
    """The same, given the areas of the copy; nothing of a worker that is gone."""
    stride = max(1, sum(map(len, memory)) // SAMPLES)
    with suppress(OSError, IndexError):
        pagemap = os.open(f"/proc/{worker}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _sampled(pagemap, memory, stride)
        finally:
            os.close(pagemap)
    return PageSharing()


def areas(copy: int) -> Sequence[range]:
    """Numbers of pages of private writable memory that belongs to no file; none of a process that is gone.

    They stay what they are for as long as the copy is frozen.
    """
    with suppress(OSError, ValueError), open(f"/proc/{copy}/maps", "rb") as lines:
        try:
            memory = list(private_memory(lines.fileno()))
        except OSError:  # the kernel takes a millisecond to write all regions as text
            memory = list(_private_memory(lines))
        pages = (range(each.start // _PAGE, each.stop // _PAGE) for each in memory)
        return tuple(each for each in pages if len(each) >= _LEAST)
    return ()


def _private_memory(lines: Iterable[bytes]) -> Iterator[range]:
    for line in lines:
        addresses, rights, _offset, _device, inode, *_path = line.split(None, 5)
        if inode == b"0" and rights.startswith(b"rw-p"):
            first, last = (int(address, 16) for address in addresses.split(b"-"))
            yield range(first, last)


def _sampled(pagemap: int, memory: Sequence[range], stride: int) -> PageSharing:
    """Samples a page per stride over all areas, as if they were contiguous."""
    found = [PageSharing()]  # the first for all small areas
    skipped = stride // 2
    for area in memory:
        pages = area[skipped::stride]
        skipped += len(pages) * stride - len(area)
        one = _looked_at(pagemap, pages)
        if len(area) < _LARGE:
            one, found[0] = PageSharing(), found[0] + one
        found.append(one)
    copied = sum(one.copied for one in found)
    exposed = sum(one.exposed for one in found if one.copied)
    swept = sum(one.swept for one in found[1:] if one.copied < one.exposed)
    return PageSharing(copied=copied * stride, exposed=exposed * stride, swept=swept * stride)


def _looked_at(pagemap: int, pages: range) -> PageSharing:
    copied = exposed = row = longest = 0
    for bits in _flags(pagemap, pages):
        if bits & _PRESENT:
            copied += bits & _EXCLUSIVE
            exposed += not bits & _EXCLUSIVE
            row = row + 1 if bits & _EXCLUSIVE else 0
            longest = max(longest, row)
    return PageSharing(copied=copied, exposed=exposed, swept=longest if longest >= _SIDE_BY_SIDE else 0)


def _flags(pagemap: int, pages: range) -> Sequence[int]:
    """The last byte of each page's entry."""
    if pages.step > _FAR_APART or not pages:
        return [os.pread(pagemap, _ENTRY, page * _ENTRY)[_ENTRY - 1] for page in pages]
    entries = os.pread(pagemap, _ENTRY * (pages[-1] - pages[0] + 1), _ENTRY * pages[0])
    return entries[_ENTRY - 1 :: _ENTRY * pages.step]


COPY_SECONDS: Final = 4e-6
"""What one copied page costs, small pages and huge ones alike, which are split: the middle of what was measured."""

GRACE_SECONDS: Final = 0.02
"""Tax that every cell has to pay: without a snapshot a crash costs the whole state. The jail kernel's own work around
each cell writes to a thousand pages, and a cell that imports something to some thousands, which takes a while.
"""

SHARE: Final = 0.2
"""The part of a cell's time above which its tax is too much. A cell may take 1.3 times as long as without a snapshot,
and giving up the copy takes its time too."""

ORDINARY: Final = 1000
"""Pages that are written around any cell, and say nothing about this one."""

MOST: Final = 0.5
"""The part of a cell's time above which it is assumed to do little but write to its initial memory. Then the copy is
given up before the grace is used up, if going on would cost more than the grace."""

EARLIEST: Final = 0.002
"""Seconds of tax, without the ordinary part, below which nothing is decided."""

LOOKED_FOR: Final = 0.0005
"""The same, above which it pays to check whether the copied pages are in one place."""

SWEPT: Final = 0.0015
"""Seconds of tax in one large, mostly shared area that count as the beginning of a sweep. The pages written around
any cell are not there."""

Verdict = Literal["keep", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """A sample of a running process, taken from outside.

    elapsed: seconds since its cell began, without those in which it waited for a processor (the second number in
    `/proc/<pid>/schedstat`): on a busy machine they would hide any tax. faults: all minor page faults so far.
    resident: pages of its own memory, without those of files.
    """

    elapsed: float
    faults: int
    resident: int


class SnapshotTax:
    """The tax of one cell. Needs a sample every millisecond or two: activity in between counts as one kind."""

    def __init__(self, begin: ProcessSample) -> None:
        """begin: sampled when the cell begins, after the copy was made: all resident pages are shared then."""
        self._last = begin
        self._suspected = self._cleared = 0

    def see(self, sample: ProcessSample) -> Verdict:
        """The verdict. `check`: find out what was copied, and call `is_too_much`."""
        faults = sample.faults - self._last.faults
        grown = max(0, sample.resident - self._last.resident)
        self._suspected += max(0, faults - grown)
        self._last = sample
        is_news = self._suspected > 2 * self._cleared
        suspicious = self._is_past_grace(self._suspected) or self._may_sweep(self._suspected)
        return "check" if is_news and suspicious else "keep"

    def is_too_much(self, found: PageSharing) -> bool:
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

    def _sweeps(self, found: PageSharing) -> bool:
        swept = min(self._suspected, found.swept)
        return swept * COPY_SECONDS > max(SWEPT, SHARE * self._last.elapsed)


_MOST: Final = 4096
"""Bytes: more than any of them has."""

_NANOSECONDS: Final = 10**9


class Counters:
    """Reads the counters of one worker at a time; a sample of another one closes the files of the one before."""

    def __init__(self) -> None:
        self._pid = 0
        self._open: dict[str, int] = {}

    def sample(self, pid: int, elapsed: float) -> ProcessSample | None:
        """None for a process that is gone."""
        try:
            stat = self._read(pid, "stat").rpartition(b")")[2].split()
            statm = self._read(pid, "statm").split()
            return ProcessSample(elapsed=elapsed, faults=int(stat[7]), resident=int(statm[1]) - int(statm[2]))
        except (OSError, ValueError, IndexError):
            return None

    def waited(self, pid: int) -> float:
        """Seconds that it was ready to run and had no processor; 0 where the kernel does not count them."""
        try:
            return int(self._read(pid, "schedstat").split()[1]) / _NANOSECONDS
        except (OSError, ValueError, IndexError):
            return 0.0

    def _read(self, pid: int, name: str) -> bytes:
        if pid != self._pid:
            self.close()
            self._pid = pid
        if name not in self._open:
            self._open[name] = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(self._open[name], _MOST, 0)
        except OSError:  # it has ended: a later one may get its number
            self.close()
            raise

    def close(self) -> None:
        opened, self._open = self._open, {}
        for descriptor in opened.values():
            os.close(descriptor)


_PART: Final = 0.125
"""The part of a cell's time so far after which it is sampled again: it pays for little more in between, and a sample
with all that wakes this process takes up to a quarter of a millisecond of a processor."""

LONGEST: Final = 0.025
"""Seconds between two samples at most, and between two pulses that are looked at while no copy shares memory."""

_LATE: Final = 10
"""Intervals without a pulse that mean the end of a cell: the next pulse is of another. The timer counts the pulses
that came while this process had no processor."""

_COUNTER: Final = 8
"""Bytes read from a timer."""


class SnapshotCostMonitor:
    """Follows one worker after the other, and one cell after the other."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._tax: SnapshotTax | None = None
        self._began = self._waited = self._last = 0.0
        self.pause = 0.0
        """See `pause_after`, of the latest beat."""
        self._waited_before: float | None = None
        """The worker's waiting time when its copy was made; None once a cell was seen."""
        self._areas: tuple[int, Sequence[range]] | None = None
        """The pid and areas of the copy that was examined last."""

    def copied(self, worker: int) -> None:
        """A copy of the worker was made just now. It is idle until its next cell begins."""
        sample = self._counters.sample(worker, 0.0)
        self._tax = None if sample is None else SnapshotTax(sample)
        self._last, self._areas = 0.0, None
        self._waited_before = self._counters.waited(worker)

    def beat(self, worker: int, *, shares: bool) -> bool:
        """A cell has been running for a while. True when its copies may cost too much: see `is_too_much`.

        shares: whether there is a copy that can be given up.
        """
        beats = _beats()
        now = time.monotonic()
        if now - self._last > (beats + _LATE) * PULSE_INTERVAL / _NANOSECONDS:
            begun = (FIRST_PULSE + (beats - 1) * PULSE_INTERVAL) / _NANOSECONDS
            waited, before = self._counters.waited(worker), self._waited_before
            # On a busy machine the first pulse comes late: the worker's waiting time before it must be known.
            self._began, self._waited_before = now - begun, None
            self._waited = waited if before is None else max(before, waited - begun)
        self._last = now
        self.pause = pause_after(now - self._began, shares=shares)
        if not shares:
            return False
        elapsed = now - self._began - (self._counters.waited(worker) - self._waited)
        sample = self._counters.sample(worker, max(elapsed, 0.0))
        if sample is None:
            return False
        if self._tax is None:
            self._tax = SnapshotTax(sample)
        return self._tax.see(sample) == "check"

    def is_too_much(self, worker: int, copy: int) -> bool:
        """Whether a suspected cell's copies must be given up. copy: the newest of them."""
        if self._tax is None:
            return False
        if self._areas is None or self._areas[0] != copy:
            self._areas = copy, areas(copy)
        return self._tax.is_too_much(shared_of(self._areas[1], worker))


def pause_after(seconds: float, *, shares: bool) -> float:
    """Seconds after a beat in which further ones need not be looked at; 0 if none comes so soon. seconds: since the
    cell began. shares: see `SnapshotCostMonitor.beat`."""
    pause = min(_PART * seconds, LONGEST) if shares else LONGEST
    return pause if pause > PULSE_INTERVAL / _NANOSECONDS else 0.0


def _beats() -> int:
    """The number of pulses since the last call."""
    with suppress(BlockingIOError):
        return int.from_bytes(os.read(PULSE, _COUNTER), sys.byteorder)
    return 1
