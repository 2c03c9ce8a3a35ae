"""The steps of a runtime as a tree, as in git: nothing is overwritten, the head moves. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from cenote_worker.history.step import START, StepRecord


class StepTree:
    """Steps by number, in the order in which they ended. A path from the start to a step is called a line.

    Numbers grow along no line in particular: a step of an author that waits is numbered before it runs.
    """

    def __init__(self) -> None:
        self._records: dict[int, StepRecord] = {}
        self._depths: dict[int, int] = {START: 0}
        self.head = START
        """The step whose state is live."""

    def add(self, record: StepRecord) -> None:
        """Raises ValueError for a number that is taken, or a parent that is not there."""
        if record.number in self._depths or record.number < START:
            raise ValueError(f"there is a step {record.number} already")
        if record.parent not in self._depths:
            raise ValueError(f"step {record.number} follows step {record.parent}, which is not there")
        self._records[record.number] = record
        self._depths[record.number] = self._depths[record.parent] + 1
        if record.stays:
            self.head = record.number
        elif record.status == "lost":
            self.head = START

    def replace(self, record: StepRecord) -> None:
        """The same step, with less of its results."""
        self._records[record.number] = record

    def move(self, head: int) -> None:
        """Raises KeyError for a step that is not there."""
        self._depths[head]
        self.head = head

    def get(self, number: int) -> StepRecord:
        """Raises KeyError for a step that is not there, the start among them."""
        return self._records[number]

    def first(self, number: int) -> int:
        """The step that it stands for in the end, through whatever patches; itself where it stands for none."""
        while number in self._records and (origin := self._records[number].origin):
            number = origin
        return number

    def __contains__(self, number: int) -> bool:
        return number in self._depths

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[StepRecord]:
        """In the order in which they ended."""
        return iter(list(self._records.values()))

    @property
    def last(self) -> int:
        """The highest number; START when there is no step."""
        return max(self._records, default=START)

    def depth(self, number: int) -> int:
        """Steps of the line to this one, itself included."""
        return self._depths[number]

    def line(self, end: int) -> list[StepRecord]:
        """From the first step to this one; empty for the start. Raises KeyError."""
        return list(self.back(end))[::-1]

    def back(self, end: int) -> Iterator[StepRecord]:
        """The same from its end, for those who need not go all the way. Raises KeyError."""
        self._depths[end]
        while end != START:
            record = self._records[end]
            yield record
            end = record.parent

    def ancestor(self, one: int, other: int) -> int:
        """The last step that the lines of two steps share; START when it is the start alone."""
        while one != other:
            if self._depths[one] >= self._depths[other]:
                one = self._records[one].parent
            else:
                other = self._records[other].parent
        return one

    def between(self, ancestor: int, end: int) -> list[StepRecord]:
        """The line from behind an ancestor to a step."""
        found: list[StepRecord] = []
        while end != ancestor:
            record = self._records[end]
            found.append(record)
            end = record.parent
        return found[::-1]
