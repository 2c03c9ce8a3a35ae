"""The port to where the checkpoints of one runtime lie: numbered files that appear whole, or not at all."""

from __future__ import annotations

from typing import Protocol

from cenote_security.sealed_memory import Buffer


class NumberTakenError(Exception):
    """A file of that number was there before."""


class DraftFile(Protocol):
    """A file on its way. Each call raises OSError for what the store cannot do."""

    def write(self, data: Buffer) -> None:
        """Appends all of it."""

    def publish(self) -> None:
        """The file is there for everybody and for ever once this returns. Raises NumberTakenError."""

    def discard(self) -> None:
        """Gives up what was not published. Calling it again, or after `publish`, is fine. Never raises."""


class Readable(Protocol):
    """What chunks can be read from."""

    @property
    def at_once(self) -> int:
        """Bytes that are best asked for in one `read`, at least a chunk's."""

    def read(self, number: int, offset: int, size: int) -> memoryview:
        """A part of a file; shorter when the file ends before it. Raises OSError."""

    def lend(self, number: int) -> int | None:
        """A descriptor of a file, to be read and mapped and nothing else, which its receiver closes. None where there
        is none, and where what is mapped could be taken away.
        """


class Folder(Readable, Protocol):
    """The files of one runtime's checkpoints. Each call raises OSError for what the store cannot do."""

    @property
    def place(self) -> str:
        """Where it is, for errors."""

    def numbers(self) -> list[int]:
        """Of the files that are there, ascending; none when there is no such folder."""

    def size(self, number: int) -> int:
        """Bytes of a file. Raises FileNotFoundError."""

    def draft(self, number: int) -> DraftFile:
        """Begins a file. Only the writer calls it."""

    def delete(self, number: int) -> None:
        """Removes a file; one that is not there is fine."""

    def remove(self) -> None:
        """Removes all of it; what is not there is fine."""

    def claim(self) -> int | None:
        """Becomes the writer; its fence, a number that grows with each. None while another one holds the folder."""

    def was_claimed(self) -> bool:
        """Whether there has ever been a writer."""

    def is_claimed(self, fence: int) -> bool:
        """Whether no later writer has come since."""

    def release(self) -> None:
        """Is the writer no more."""
