"""The right to a value that lives outside any runtime, sealed, and where it lies."""

from __future__ import annotations

from typing import Protocol

from cenote_worker.content import Content


class Holding(Protocol):
    """Where a reference's value lies, and the right to it."""

    @property
    def place(self) -> str:
        """The platform that has the value; empty for this process."""

    @property
    def id(self) -> str:
        """What the platform knows it by; empty in this process."""

    def content(self) -> Content:
        """The sealed value for one more holder, who closes it. Brings it here, and so blocks, from elsewhere."""

    def release(self) -> None:
        """Gives the right up. Called once."""


class HeldHere:
    """Sealed memory of this process."""

    place = ""
    id = ""

    def __init__(self, content: Content) -> None:
        self._content = content

    def content(self) -> Content:
        return self._content.duplicate()

    def release(self) -> None:
        self._content.close()
