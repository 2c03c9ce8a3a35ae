"""A file of results that is there as a whole or not at all. What was broken off goes on in the next command."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from cenote_security.errors import CenoteError, UsageError

if TYPE_CHECKING:
    from cenote.jobs import TaskResult


class ResultsNotWrittenError(CenoteError):
    """The job is there, and its results; the file is not, as where a disk is full. job: its name."""

    def __init__(self, path: Path, job: str, error: OSError) -> None:
        super().__init__(path, job, error)
        self.path = path
        self.job = job
        self.error = error

    def __str__(self) -> str:
        return (
            f"{str(self.path)!r} cannot be written: {self.error.strerror}; the platform keeps the results: "
            f"`cenote job results {self.job} --output FILE` goes on with this file, or begins another"
        )


def check_place(path: Path) -> None:
    """Whether results can be put there, before anything is done for them. Raises UsageError."""
    if path.is_dir():
        raise UsageError(f"{str(path)!r} cannot be written: it is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{str(path)!r} cannot be written: nothing can be put into {str(path.parent)!r}")


class ResultFile:
    """Written beside its place, under a name with the job in it: a part of another job is never gone on with.

    revision: of the job: a part from before tasks were done again is none of it. Inside, `after` is the place in the
    input behind which results are missing; lines and bad count all that are there, those of former commands too.
    """

    def __init__(self, path: Path, job: str, revision: int) -> None:
        self._path = path
        self._stem = f".{path.name}.{job[3:13]}-"
        self._part = path.with_name(f"{self._stem}{revision}.part")
        self.after = 0
        self.lines = 0
        self.bad = 0

    def __enter__(self) -> Self:
        """Raises UsageError where nothing can be written, or another command writes it."""
        try:
            self._file: BinaryIO = open(self._part, "a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another command writes {str(self._path)!r} now") from None
        except OSError as error:
            raise UsageError(f"{str(self._path)!r} cannot be written: {error.strerror}") from None
        self._read_former()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, result: TaskResult) -> None:
        line = json.dumps(result.as_data(), ensure_ascii=False).encode("utf-8", "backslashreplace")
        self._file.write(line + b"\n")
        self._count(result.index, well=result.succeeded)

    def finish(self) -> None:
        """It is whole: now it is there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)
        for older in self._path.parent.glob(f"{_literal(self._stem)}*.part"):
            older.unlink(missing_ok=True)

    def _read_former(self) -> None:
        """Of a last line that is no whole one nothing stays."""
        self._file.seek(0)
        whole = 0
        for line in self._file:
            try:
                known = json.loads(line) if line.endswith(b"\n") else None
                if known is None:
                    break
                self._count(int(known["index"]), well=known["status"] == "succeeded")
            except (ValueError, KeyError, TypeError):
                break
            whole += len(line)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)

    def _count(self, index: int, *, well: bool) -> None:
        self.after, self.lines, self.bad = index, self.lines + 1, self.bad + (not well)


def _literal(text: str) -> str:
    """For a glob."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)
