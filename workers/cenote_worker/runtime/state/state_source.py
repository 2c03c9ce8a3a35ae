"""What a fresh jail gets besides the injected values, and what is reported about the one that ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from cenote_security.errors import NotKeptError, UsageError
from cenote_worker.execution.results import Carried, ExecutionResult, StreamName
from cenote_worker.history.step import START
from cenote_worker.supervisor.exit_reason import LOST
from cenote_worker.supervisor.requests import Listener, Outcome
from cenote_worker.supervisor.supervisor import Supervisor


class FreshJailNeededError(Exception):
    """The jail that was to be filled is of no use any more: the state has to be put into another one."""


Source = Callable[[], Supervisor]
"""Gives the jail that a request was sent to. Blocks while that is being taken over."""


class StateSource(Protocol):
    """A stored state."""

    @property
    def stores(self) -> bool:
        """Whether states of the runtime are ever stored."""

    @property
    def begins_with(self) -> str:
        """A description of the state that the next jail begins with; empty when nothing is stored."""

    @property
    def step(self) -> int:
        """The last step in the stored state; START when nothing is stored."""

    @property
    def arrival(self) -> str:
        """For the record, once a jail is filled: how it came to its state; see `arrival_of`."""

    @property
    def exact(self) -> bool:
        """Whether it is the state that clients were last informed of: then the end of a jail loses nothing."""

    @property
    def is_current(self) -> bool:
        """Whether clients are informed of changes only once these are stored, so that no jail continues from an older
        state than they know. On any thread.
        """

    def acknowledging(self, listener: Listener, source: Source, key: str) -> Listener:
        """A listener of a request to that jail, which delays the outcome until it may be relied on.

        key: identifies the request when it is sent again; empty if it is not.
        """

    def fill(self, supervisor: Supervisor, inject: Callable[[], None]) -> None:
        """Puts the stored state, if any, into an empty jail.

        inject: makes the clients' injections, after which the stored values are put. Called once.
        Raises CheckpointError, and what `inject` raises. Raises FreshJailNeededError when it has to be called with
        another jail, and then not again.
        """

    def forget(self) -> None:
        """The next jail begins with the injected values only."""

    def rest(self) -> None:
        """Stores the state and ends the jail, if there is one. Blocks.

        Raises UnavailableError while any call is under way, IncompleteRestoreError when something would be missing:
        then the jail goes on. Raises CheckpointError.
        """

    def stored(self) -> Mapping[int, int]:
        """Steps of the history whose end states are stored whole, each with the last step up to it after which a jail
        of the runtime began with a stored state, START for none. Blocks.
        """

    def rebuilt(self, step: int) -> frozenset[str]:
        """Names that such a state gets by running steps again. Blocks."""

    def beginning(self, step: int) -> StateSource:
        """A source that fills a jail with such a state. Blocks. Raises NotKeptError, CheckpointError."""

    def goes_on_from(self, step: int) -> None:
        """The runtime's jail is now one that began with such a state."""

    def began_anew(self) -> None:
        """Stores the state, if the runtime's states are stored, after a change that no call has made: the state is as
        at first, or its history is another. Blocks. Raises CheckpointError.
        """

    def worked(self) -> None:
        """Stores the state after a piece of work, if each change is stored. Blocks. Raises CheckpointError."""

    def finish(self) -> None:
        """Waits for what is still being stored of the jail, which is about to end or to go to another process. Blocks
        for as long as one call may take.
        """

    def close(self) -> None:
        """The runtime was closed."""


class NoStateSource:
    """The StateSource of a runtime that stores nothing."""

    stores = False
    begins_with = ""
    step: int = START
    arrival = "a fresh jail"
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

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


def arrival_of(carried: Carried | None) -> str:
    """The same in words, from how the state came into the jail."""
    if carried is None:
        return NoStateSource.arrival
    because = f": {carried.reason}" if carried.reason else ""
    return f"{NoStateSource.arrival}, {carried.how}{because}"


NO_STATE_SOURCE: Final[StateSource] = NoStateSource()


class LossNoticeListener:
    """Passes events on; where a jail has ended, a cell's result says which state is left."""

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
