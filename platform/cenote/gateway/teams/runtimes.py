"""Runtimes and shared values of a team's agents, with names and ids by which a later process finds them."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from cenote.runtime import ObjectReference
from cenote.runtime.core.runtime_core import RuntimeCore
from cenote.runtime.faces.asynchronous import AsyncPythonRuntime
from cenote.runtime.inject.injectables import Injectable
from cenote.runtime.remote.address import Destination
from cenote.runtime.remote.background import background
from cenote.runtime.remote.platform_client import PlatformClient, client_of
from cenote.runtime.remote.runtime import RemoteRuntime
from cenote_security.errors import (
    RuntimeLostError,
    UnavailableError,
    UnknownReferenceError,
    UnknownRuntimeError,
    UsageError,
)
from cenote_security.ids import TeamId
from cenote_security.policy import SandboxPolicy

LEASE: Final = 900.0
"""Seconds that an agent's runtime outlives the process that works on its team. Another process takes over in much
less time, and a team without a process keeps no runtimes.
"""

PATIENCE: Final = 30.0

ROOM: Final = 60.0
"""Seconds for a passing obstacle to making a runtime, such as a full disk."""

LOOK_EVERY: Final = 1.0

Key = Callable[[str], str]
"""Returns the key of the cell that an agent is about to run."""


class TeamRuntimes:
    """The runtimes of one run of a team."""

    def __init__(
        self, destination: Destination, team: TeamId, run: int, agents: Sequence[str], key: Key
    ) -> None:
        self._destination = destination
        self._team = team
        self._run = run
        self._agents = list(agents)
        self._key = key
        self._cores: dict[str, RuntimeCore] = {}

    def make(self, name: str, sandbox: SandboxPolicy) -> AsyncPythonRuntime:
        """See RuntimeFactory. A runtime without an agent's name ends with this process."""
        at = self._destination
        if name not in self._agents:
            backend = partial(_AgentsRuntime, client_of(at))
            return AsyncPythonRuntime.holding(RuntimeCore((), (), (), None, sandbox, name, backend))
        backend = partial(
            _AgentsRuntime,
            client_of(at),
            name=self.name_of(name),
            attach=True,
            client_name=self._client(name),
            cell_key=partial(self._key, name),
            lease=LEASE,
        )
        core = self._cores[name] = RuntimeCore((), (), (), None, sandbox, name, backend)
        return AsyncPythonRuntime.holding(core)

    def register(self, agent: str, items: Sequence[Injectable]) -> None:
        """See RuntimeCore.register."""
        self._cores[agent].register(items)

    def lost(self, agents: Sequence[str]) -> list[str]:
        """Agents whose runtime no longer exists."""
        return [agent for agent in agents if not self._is_there(agent)]

    def delete(self) -> None:
        """Ends all runtimes of this run, including those of earlier processes."""
        for agent in self._agents:
            try:
                background().wait(self._client_of_platform().delete(self.name_of(agent)), PATIENCE, "answer")
            except UnknownRuntimeError:
                continue

    def name_of(self, agent: str) -> str:
        """The name of an agent's runtime, in ASCII for any agent name."""
        plain = re.sub(r"[^A-Za-z0-9]", "", agent)[:20] or "agent"
        return f"{names_of(self._team)}{self._run}-{self._agents.index(agent)}-{plain}"

    def _is_there(self, agent: str) -> bool:
        from cenote_proto.v1 import platform_pb2

        try:
            question = self._client_of_platform().describe(self.name_of(agent))
            described = background().wait(question, PATIENCE, "answer")
        except (UnknownRuntimeError, RuntimeLostError):
            return False
        return described.state != platform_pb2.RuntimeDescription.LOST

    def _client(self, agent: str) -> str:
        """The client id, equal in each process: cells and host calls of an earlier process belong to this one."""
        text = f"{self._team}/{self._run}/{agent}"
        return f"team-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def _client_of_platform(self) -> PlatformClient:
        return client_of(self._destination)


class _AgentsRuntime(RemoteRuntime):
    """Retries creation for a while: a run fails if an agent's runtime fails."""

    def start(self) -> None:
        until = time.monotonic() + ROOM
        while True:
            try:
                return super().start()
            except UnavailableError as error:
                # Other errors, such as a jail that does not start, would repeat.
                if type(error) is not UnavailableError or time.monotonic() >= until:
                    raise
            time.sleep(LOOK_EVERY)


def names_of(team: TeamId) -> str:
    """The common prefix of the runtime names of a team's agents."""
    return f"team-{team[3:13]}-"


KEPT: Final = 3600.0
"""Seconds that the results of a run are kept for the client that started it."""


class TeamReferences:
    """See ReferenceStore. holder: equal in each process that works on the team."""

    def __init__(self, destination: Destination, holder: str) -> None:
        self._references = client_of(destination).references
        self._holder = holder

    def keep(self, reference: ObjectReference) -> str:
        holding = reference.holding
        if holding.place != self._references.place:
            raise UsageError("a team of a platform works with values of that platform")
        return str(holding.id)

    def find(self, reference_id: str) -> ObjectReference | None:
        found = self._references.find(reference_id, self._holder)
        try:
            holding, info = background().wait(found, PATIENCE, "find a value")
        except UnknownReferenceError:
            return None
        return ObjectReference(holding, info)

    def leave(self, reference_id: str) -> None:
        """Keeps a value for a while after the team's process has ended."""
        kept = self._references.leave(reference_id, f"{self._holder}, done", KEPT)
        background().wait(kept, PATIENCE, "keep a value")
