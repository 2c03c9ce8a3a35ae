"""The port to the place of one runtime's checkpoints: numbered files that appear whole, or not at all."""

from __future__ import annotations

from typing import Protocol

from cenote_security.sealed_memory import Buffer
from cenote_worker.checkpoints.image_files import ImageFiles


class NumberTakenError(Exception):
    """A file of that number exists already."""


class DraftFile(Protocol):
    """A file that is being written. Each call raises OSError for what the store cannot do."""

    def write(self, data: Buffer) -> None:
        """Appends all of it."""

    def publish(self) -> None:
        """The file is durable and visible to all readers once this returns. Raises NumberTakenError."""

    def discard(self) -> None:
        """Removes an unpublished file. Calling it again, or after `publish`, is fine. Never raises."""


class Readable(Protocol):
    """A source of chunks."""

    @property
    def at_once(self) -> int:
        """The best number of bytes for one `read`, at least a chunk."""

    def read(self, number: int, offset: int, size: int) -> memoryview:
        """A part of a file; shorter when the file ends before it. Raises OSError."""

    def lend(self, number: int) -> int | None:
        """A descriptor of a file for reading and mapping only; its receiver closes it. None where there is none, or
        where the file could disappear while it is mapped.
        """


class Folder(Readable, Protocol):
    """The files of one runtime's checkpoints. Each call raises OSError for what the store cannot do."""

    @property
    def place(self) -> str:
        """The place, for errors."""

    @property
    def images(self) -> ImageFiles | None:
        """Images of processes beside the checkpoints; None where a process cannot map them."""

    def numbers(self) -> list[int]:
        """Numbers of the existing files, ascending; none when there is no such folder."""

    def size(self, number: int) -> int:
        """Bytes of a file. Raises FileNotFoundError."""

    def draft(self, number: int) -> DraftFile:
        """Begins a file. Only the writer calls it."""

    def delete(self, number: int) -> None:
        """Removes a file; a missing file is fine."""

    def remove(self) -> None:
        """Removes all of it; a missing folder is fine."""

    def claim(self, above: int = 0) -> int | None:
        """Becomes the writer. Gives its fence, a number that grows with each writer; None while another is writer.

        above: a fence of a writer elsewhere, whose files were copied here.
        """

    def was_claimed(self) -> bool:
        """Whether there has ever been a writer."""

    def is_claimed(self, fence: int) -> bool:
        """Whether no later writer has come since."""

    def release(self) -> None:
        """Stops being the writer."""
