"""Full outputs of cells, kept where model-written code can read them."""

from __future__ import annotations

from cenote.agent.namespace_functions import NamespaceFunctions

MAX_CHARACTERS = 64 * 2**20
"""Characters kept over the life of an agent; beyond that the oldest outputs go."""


class KeptOutputs(NamespaceFunctions):
    """Outputs by the number of their cell. Read from other threads while the agent works."""

    def __init__(self, limit: int = MAX_CHARACTERS) -> None:
        self._texts: dict[int, str] = {}
        self._limit = limit

    def keep(self, cell: int, text: str) -> None:
        """Keep a text; the first one given for a cell stays, which is the longest."""
        self._texts.setdefault(cell, text)
        while len(self._texts) > 1 and sum(map(len, self._texts.values())) > self._limit:
            del self._texts[next(iter(self._texts))]

    def branch(self) -> KeptOutputs:
        """A copy that goes its own way."""
        branch = KeptOutputs(self._limit)
        branch._texts = dict(self._texts)
        return branch

    def read_output(self, number: int) -> str:
        """The full output of an earlier block."""
        try:
            return self._texts[number]
        except (KeyError, TypeError):
            kept = ", ".join(map(str, self._texts)) or "none"
            raise LookupError(f"no output is kept under {number!r}; there are {kept}") from None
