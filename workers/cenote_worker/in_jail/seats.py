"""The authors of one process: what each has to themselves while the others have their turn."""

from __future__ import annotations

from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from types import ModuleType

from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.surroundings import Surroundings

__builtins__ = BUILTINS


@dataclass(slots=True, kw_only=True)
class Seat:
    """One author's place. The module is the common one, or the author's own.

    Each module is called `__main__` and is that while its author has the turn, so that classes can be pickled and
    `if __name__ == "__main__"` means what it says. futures: compiler flags of `from __future__` imports.
    """

    module: ModuleType
    context: Context
    surroundings: Surroundings
    futures: int = 0


class Seats:
    """Seats by author and by whether the namespace is the author's own; made when first asked for.

    The authors trust each other: seats keep accidents apart. Code that wants to reach another's names can.
    """

    def __init__(self, module: ModuleType, context: Context) -> None:
        self._begin = Surroundings.here()
        first = Seat(module=module, context=context, surroundings=self._begin)
        self._seats = {("", False): first}
        self._common = module

    def of(self, author: str, private: bool) -> Seat:
        seat = self._seats.get((author, private))
        if seat is None:
            module = ModuleType("__main__") if private else self._common
            # An empty context: a copy would share what is in it, such as the decimal context, changed in place.
            seat = Seat(module=module, context=Context(), surroundings=self._begin)
            self._seats[author, private] = seat
        return seat

    def private_authors(self) -> list[str]:
        """Those whose own namespace has been made."""
        return [author for author, private in self._seats if private]

    def move(self, leaving: Seat, coming: Seat) -> list[str]:
        """Keeps what surrounds one author and puts back what surrounds another. Gives notes for the latter."""
        with suppress(Exception):
            # Where a cell has ruined `os` or `sys`, its author will be back where they were before.
            leaving.surroundings = Surroundings.here()
        try:
            note = coming.surroundings.restore(self._begin.directory or "/")
        except OSError as error:
            note = f"the working directory cannot be put back: {error.strerror}"
        return [note] if note else []
