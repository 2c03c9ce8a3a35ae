"""Common base of contenders that run cells in the caller's own process, where values move by assignment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import MutableMapping
from typing import ClassVar, Self

from benchmarks.runtime.contender import Contender


class SameProcessContender(Contender):
    """A contender whose namespace is a dict of this process."""

    separate: ClassVar[bool] = False

    @property
    @abstractmethod
    def namespace(self) -> MutableMapping[str, object]:
        """The dict that cells run in."""

    def inject(self, name: str, value: object) -> None:
        self.namespace[name] = value

    def retrieve(self, name: str) -> object:
        return self.namespace[name]

    def prepare_hand_over(self, name: str) -> object:
        return self.namespace[name]

    def receive(self, name: str, parcel: object, giver: Self) -> None:  # noqa: ARG002  (the interface's)
        self.namespace[name] = parcel

    def status(self) -> None:
        """Returns at once: that this line runs while a cell does is the answer."""

    def close(self) -> None:
        self.namespace.clear()
