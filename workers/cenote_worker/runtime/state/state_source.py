"""What a fresh jail gets besides the injected values, and what is said then of the one that ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from cenote_security.errors import NotKeptError, UsageError
from cenote_worker.execution.results import ExecutionResult, StreamName
from cenote_worker.history.step import START
from cenote_worker.supervisor.exit_reason import LOST
from cenote_worker.supervisor.requests import Listener, Outcome
from cenote_worker.supervisor.supervisor import Supervisor

Source = Callable[[], Supervisor]
"""The jail that a request was sent to. Blocks for as long as that is being taken over."""


class StateSource(Protocol):
    """A stored state."""

    @property
    def stores(self) -> bool:
        """Whether anything of the runtime is ever stored."""

    @property
    def begins_with(self) -> str:
        """What the next jail begins with, in words; empty when nothing is stored."""

    @property
    def step(self) -> int:
        """The last step that the stored state has; START when nothing is stored."""

    @property
    def exact(self) -> bool:
        """Whether that is what everybody was told last: then nobody has lost anything with a jail that ended."""

    @property
    def is_current(self) -> bool:
        """Whether nobody hears of any change before it is stored, and so no jail goes on from an older state than
        that. On any thread.
        """

    def acknowledging(self, listener: Listener, source: Source, key: str) -> Listener:
        """A listener of a request to that jail, which hears of what it did when it may be relied on.

        key: what the request is known by when it is sent again; empty if it is not.
        """

    def fill(self, supervisor: Supervisor, inject: Callable[[], None]) -> None:
        """Puts the stored state, if any, into a jail that has nothing yet.

        inject: puts in the values that clients have, which the stored ones come behind. Called once.
        Raises CheckpointError, and what `inject` raises.
        """

    def forget(self) -> None:
        """The next jail begins with the injected values only."""

    def rest(self) -> None:
        """Stores the state and ends the jail, if one is there. Blocks.

        Raises UnavailableError while anybody does anything, IncompleteRestoreError when something would be missing:
        then the jail goes on. Raises CheckpointError.
        """

    def stored(self) -> Mapping[int, int]:
        """Steps of the history whose end states are stored whole, each with the last one up to it behind which a jail
        of the runtime began with a stored state, START for none. Blocks.
        """

    def rebuilt(self, step: int) -> frozenset[str]:
        """Names that such a state has by running steps again. Blocks."""

    def beginning(self, step: int) -> StateSource:
        """What fills a jail with such a state. Blocks. Raises NotKeptError, CheckpointError."""

    def goes_on_from(self, step: int) -> None:
        """A jail that began with such a state is the runtime's."""

    def began_anew(self) -> None:
        """Stores the state, which no call has led to from the former one, if anything is stored of the runtime: it is
        as it was at first, or its history is another. Blocks. Raises CheckpointError.
        """

    def worked(self) -> None:
        """Stores the state that a piece of work has led to, if each change is. Blocks. Raises CheckpointError."""

    def close(self) -> None:
        """The runtime was closed."""


class NoStateSource:
    """Of a runtime that stores nothing."""

    stores = False
    begins_with = ""
    step: int = START
    exact = False
    is_current = False

    def acknowledging(self, listener: Listener, _source: Source, _key: str) -> Listener:
        return listener

    def fill(self, _supervisor: Supervisor, inject: Callable[[], None]) -> None:
        inject()

    def forget(self) -> None:
        pass

    def rest(self) -> None:
        raise UsageError("nothing of this runtime is stored; its jail would end with its state")

    def stored(self) -> Mapping[int, int]:
        return {}

    def rebuilt(self, _step: int) -> frozenset[str]:
        return frozenset()

    def beginning(self, step: int) -> StateSource:
        raise NotKeptError(step)

    def goes_on_from(self, step: int) -> None:
        pass

    def began_anew(self) -> None:
        pass

    def worked(self) -> None:
        pass

    def close(self) -> None:
        pass


NO_STATE_SOURCE: Final[StateSource] = NoStateSource()


class LossNoticeListener:
    """Passes on what happens; a cell's result says what is left where a jail has ended."""

    def __init__(self, listener: Listener, refill: StateSource) -> None:
        self._listener = listener
        self._refill = refill

    def output(self, stream: StreamName, text: str) -> bool:
        return self._listener.output(stream, text)

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, ExecutionResult):
            outcome = recovered(outcome, self._refill.begins_with)
        self._listener.done(outcome)


def recovered(result: ExecutionResult, begins_with: str) -> ExecutionResult:
    """The result of a cell whose jail has ended, if the next one begins with more than the injected values."""
    if result.state != "lost" or not begins_with or result.error is None:
        return result
    message = result.error.message.replace(LOST, begins_with)
    return replace(result, state="rolled_back", error=replace(result.error, message=message))
