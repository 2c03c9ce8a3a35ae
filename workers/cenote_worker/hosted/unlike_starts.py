"""What a history begins with, and what keeps a fresh jail from beginning in that state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cenote_worker.history.history import History
from cenote_worker.history.step import START
from cenote_worker.hosted.injection import Injection


@dataclass(frozen=True, slots=True)
class Start:
    """beginnings: what has to be put in, in this order: by its content, or itself where it stands for what is gone.

    missing: names of that for which there is nothing.
    """

    beginnings: tuple[str | Injection, ...]
    missing: tuple[str, ...]

    @property
    def obstacle(self) -> str:
        """Why it cannot be made again; empty if it can."""
        if not self.missing:
            return ""
        return f"{_spoken(self.missing)}, put in before the first step, is not here any more"


def start_of(history: History, noted: Sequence[Injection], keeps: Callable[[str], bool]) -> Start:
    """noted: what jails begin with now. keeps: whether what was put in under a content can be put in again.

    Where it cannot, and where an old history does not tell of it, what was put in before the first step stands for it
    that has the same names: whether it is the same value is for versions to tell.
    """
    beginnings: list[str | Injection] = []
    missing: list[str] = []
    told: set[str] = set()

    def stand_in(names: Sequence[str]) -> None:
        for name in names:
            given = [each for each in noted if each.step == START and name in each.qualified_names]
            if not given:
                missing.append(name)
            beginnings.extend(each for each in given if each not in beginnings)

    for each in history.begun_values:
        told.update(each.names)
        if keeps(each.content):
            beginnings.append(each.content)
        else:
            stand_in([name for name in each.names if name in history.begun])
    stand_in([name for name in history.begun if name not in told])
    return Start(tuple(beginnings), tuple(dict.fromkeys(missing)))


def unkept_files(history: History) -> str:
    """Of the files in it, as `Start.obstacle`."""
    unkept = [path for path, digest in history.begun_files.items() if not digest]
    return f"the content of {_spoken(unkept)}, written before the first step, is not kept" if unkept else ""


def _spoken(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" if name else "further files" for name in names)
