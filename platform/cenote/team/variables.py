"""Variables of a whole team: references under names, each new one a version.

An agent is notified once of each version newer than its own. A value can be looked at without being loaded into a
namespace: pieces of it come as bounded text.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from cenote.agent.prompt.stubs import type_name
from cenote.runtime import AsyncPythonRuntime, ObjectReference
from cenote.runtime.inject.injectables import Variable, check_name
from cenote.team.concurrency import AsyncCondition
from cenote.team.errors import UnknownTeamNameError, VariablesFullError
from cenote.team.runtimes import OwnedRuntime, RuntimeFactory
from cenote_security.errors import RejectedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import printable

MAX_NAMES = 1_000
"""Variables of one team. Each may hold a descriptor of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamVariable:
    """One version of a variable. Versions count from 1. author: who put it there; empty for the program itself."""

    name: str
    version: int
    reference: ObjectReference
    author: str = ""


class TeamVariables:
    """The newest version of each variable, from any thread. Older versions live on where they are in use.

    limit: bytes of all newest versions together: they are held outside of all jails, and jails put them there.
    on_change: called after each new version.
    """

    def __init__(self, limit: int = 2**33, on_change: Callable[[], None] | None = None) -> None:
        self._limit = limit
        self._newest: dict[str, TeamVariable] = {}
        self._versions: dict[str, int] = {}
        self._lock = threading.Lock()
        self._changed = AsyncCondition()
        self._on_change = on_change

    def put(self, name: str, reference: ObjectReference, *, author: str = "") -> int:
        """A new version of a variable, new or not; gives its number. Raises UsageError, VariablesFullError."""
        check_name(name, "team variable")
        if not isinstance(reference, ObjectReference):
            raise UsageError(
                f"a team variable is an ObjectReference, as runtime.share(name) gives, not {type(reference).__name__}"
            )
        with self._lock:
            self._check_room(name, reference.size)
            version = self._versions[name] = self._versions.get(name, 0) + 1
            variable = TeamVariable(name=name, version=version, reference=reference, author=author)
            self._newest[name] = variable
        if self._on_change is not None:
            self._on_change()
        self._changed.ring()
        return version

    def _check_room(self, name: str, size: int) -> None:
        others = [variable.reference.size for variable in self._newest.values() if variable.name != name]
        if sum(others) + size > self._limit:
            raise VariablesFullError("bytes", self._limit)
        if len(others) >= MAX_NAMES:
            raise VariablesFullError("names", MAX_NAMES)

    def restore(self, name: str, version: int, reference: ObjectReference | None, author: str) -> None:
        """A version from before a restart. None: the value is lost; its number is not used again all the same."""
        self._versions[name] = version
        if reference is not None:
            variable = TeamVariable(name=name, version=version, reference=reference, author=author)
            self._newest[name] = variable

    def get(self, name: str) -> TeamVariable:
        """The newest version. Raises UnknownTeamNameError."""
        with self._lock:
            found, names = self._newest.get(name), tuple(self._newest)
        if found is None:
            raise UnknownTeamNameError("variable", name, names)
        return found

    def newest(self) -> tuple[TeamVariable, ...]:
        """The newest version of each variable."""
        with self._lock:
            return tuple(self._newest.values())

    async def changed(self, name: str, after: int = 0) -> TeamVariable:
        """The newest version of a variable, as soon as there is one above `after`."""
        check_name(name, "team variable")
        return await self._changed.until(lambda: self._above(name, after))

    def _above(self, name: str, version: int) -> TeamVariable | None:
        with self._lock:
            found = self._newest.get(name)
        return found if found is not None and found.version > version else None


class SeenVersions:
    """The versions that one agent has seen. It is notified of each newer version once."""

    def __init__(self, variables: TeamVariables) -> None:
        self._variables = variables
        self._told: dict[str, int] = {}

    def took(self, variable: TeamVariable) -> None:
        """The agent has this version: it fetched it, or made it."""
        self._told[variable.name] = max(variable.version, self._told.get(variable.name, 0))

    def notices(self) -> tuple[str, ...]:
        """A line for each variable that was replaced since the agent was given it, or was last notified."""
        newer = [
            variable
            for variable in self._variables.newest()
            if variable.version > self._told.get(variable.name, variable.version)
        ]
        for variable in newer:
            self.took(variable)
        return tuple(map(_line, newer))


def _line(variable: TeamVariable) -> str:
    author = f" by {variable.author}" if variable.author else ""
    kind = printable(type_name(variable.reference.info))
    shape = f" {variable.reference.shape}" if variable.reference.shape else ""
    name = variable.name
    return f"a new `{name}` is there: version {variable.version}{author}, {kind}{shape}; team.get({name!r}) gives it"


MAX_TEXT = 8_000
"""Characters of one piece. What is longer belongs into code; a jail that sends more is cut off here."""

MOST_FOUND = 100
AT_ONCE = 4
"""Jails that read for one team: hostile code asks as often as it can."""

SECONDS = 60.0
"""Time for one piece. The jail loads the value, which may be made by hostile code."""


class ReferenceReader:
    """Opens references in jails of their own, which end with each question: what one value's code does there is not
    seen by the next.

    sandbox: of those jails; without a network and mounts, whatever it says. seconds: for one question.
    """

    def __init__(self, runtimes: RuntimeFactory, sandbox: SandboxPolicy, seconds: float = SECONDS) -> None:
        self._runtimes = runtimes
        self._seconds = seconds
        self._sandbox = replace(sandbox, network="none", mounts=())
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._place_is_free = AsyncCondition()

    async def preview(self, reference: ObjectReference) -> str:
        """Type, shape, size, schema, and how the value begins and ends; the same for equal values."""
        shape = f" {reference.shape}" if reference.shape is not None else ""
        head = printable(f"{reference.type}{shape}, {reference.size} bytes; {reference.description}")
        return f"{head}\n{await self._ask(reference, 'preview(value)')}"

    async def read(self, reference: ObjectReference, start: int = 0, stop: int = 20) -> str:
        """The rows, items, entries or characters from `start` to before `stop`, as slices count them."""
        _check(int, start=start, stop=stop)
        return await self._ask(reference, f"piece(value, {start:d}, {stop:d})")

    async def search(self, reference: ObjectReference, text: str, most: int = 20) -> str:
        """The first rows, items, entries or places in a text that hold `text`, with their positions."""
        _check(str, text=text)
        _check(int, most=most)
        if not text or not 1 <= most <= MOST_FOUND:
            raise UsageError(f"a search is for a text that is not empty, and for 1 to {MOST_FOUND} places")
        return await self._ask(reference, f"occurrences(value, {text!r}, {most:d})")

    async def _ask(self, reference: ObjectReference, expression: str) -> str:
        function = expression.partition("(")[0]
        code = f"from cenote_worker.jail.rendering.text_slices import {function}\nprint({expression}, end='')"
        async with self._place():
            runtime = OwnedRuntime(self._runtimes("reader", self._sandbox), tuple)
            try:
                async with asyncio.timeout(self._seconds):
                    return await _answer(runtime.face, reference, code)
            except TimeoutError:
                raise RejectedError(f"this value cannot be read in {self._seconds:g} seconds") from None
            finally:
                await runtime.close()

    @asynccontextmanager
    async def _place(self) -> AsyncGenerator[None, None]:
        await self._place_is_free.until(lambda: self._places.acquire(blocking=False) or None)
        try:
            yield
        finally:
            self._places.release()
            self._place_is_free.ring()


async def _answer(runtime: AsyncPythonRuntime, reference: ObjectReference, code: str) -> str:
    await runtime.inject(Variable("value", reference))
    result = await runtime.execute(code)
    if not result.success:
        reason = f"{result.error.type}: {result.error.message}" if result.error else "no reason given"
        raise RejectedError(f"this value cannot be read: {printable(reason[:500])}")
    text = result.stdout
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n[cut at {MAX_TEXT} characters]"


def _check(kind: type, **arguments: object) -> None:
    for name, argument in arguments.items():
        if type(argument) is not kind:
            raise UsageError(f"{name} is of type {kind.__name__}, not {type(argument).__name__}")
