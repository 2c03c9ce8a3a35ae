"""Full outputs of cells, kept where model-written code can read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from cenote.agent.namespace_functions import NamespaceFunctions, install
from cenote.agent.port import AgentRuntime
from cenote.runtime.injectables import Variable, check_name
from cenote_security.errors import NameExistsError

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

    async def handle(self, runtime: AgentRuntime, cell: int) -> str:
        """An expression that gives the text kept for a cell, when code in the runtime evaluates it."""
        return f"{await install(runtime, self.read_output, 'pure')}({cell})"

    def branch(self) -> KeptOutputs:
        """A copy that goes its own way."""
        branch = type(self)(self._limit)
        branch._texts = dict(self._texts)
        return branch

    def read_output(self, number: int) -> str:
        """The full output of an earlier block."""
        try:
            return self._texts[number]
        except (KeyError, TypeError):
            kept = ", ".join(map(str, self._texts)) or "none"
            raise LookupError(f"no output is kept under {number!r}; there are {kept}") from None


def highest_number(prefix: str, texts: Iterable[str]) -> int:
    """The highest number after a prefix that texts mention: a model goes by what it has read."""
    mentioned = re.compile(rf"\b{re.escape(prefix)}_([0-9]{{1,9}})\b")
    return max((int(found[1]) for text in texts for found in mentioned.finditer(text)), default=0)


class OutputVariables(KeptOutputs):
    """Outputs as variables of the namespace: `_output_1`, `_output_2`, ... after the prefix, by the numbers that are
    free. They are there for good, and code can slice and search them as any text."""

    def __init__(self, prefix: str, above: int = 0, limit: int = MAX_CHARACTERS) -> None:
        """above: numbers up to this one are taken."""
        super().__init__(limit)
        check_name(f"{prefix}_1", "variable")
        self._prefix = prefix
        self._above = above
        self._names: dict[int, str] = {}

    @property
    def last(self) -> str | None:
        """The name of the variable that was made last."""
        return next(reversed(self._names.values()), None)

    async def handle(self, runtime: AgentRuntime, cell: int) -> str:
        if cell not in self._names:
            self._names[cell] = await self._bound(runtime, self._texts[cell])
        return self._names[cell]

    async def _bound(self, runtime: AgentRuntime, text: str) -> str:
        for number in count(self._above + len(self._names) + 1):
            try:
                await runtime.inject(Variable(name := f"{self._prefix}_{number}", text))
            except NameExistsError:
                continue
            return name
        raise AssertionError("there is always another number")

    def branch(self) -> OutputVariables:
        branch = OutputVariables(self._prefix, self._above, self._limit)
        branch._texts, branch._names = dict(self._texts), dict(self._names)
        return branch
