"""An actor that is made before there is work for it: making one takes seconds, most of them for imports.

One for the works of one kind. It takes one work and ends with it, so nothing of one tenant's work meets another's.
Ray does not restart it: a restarted one would not know its work. The gateway replaces it, from what is recorded.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import ray

from cenote.gateway.work.workload import pause_after
from cenote_security.errors import CenoteError
from cenote_worker.node.node import HostGone
from cenote_worker.node.ray.actor_calls import LOOK_PATIENCE, answer

log = logging.getLogger("cenote.orchestrators")

_NAME: Final = "spare-"


class SpareActors:
    """The spare of one gateway, and those that have taken work, which keep their names. Not thread-safe."""

    def __init__(
        self, kind: str, make: Callable[[str], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """make: an actor of this name, which waits for work."""
        self._prefix = f"{_NAME}{kind}/"
        self._make = make
        self._clock = clock
        self._name = ""
        self._actor: Any = None
        self._taken: dict[str, str] = {}
        """Names of actors by their work."""
        self._losses = 0
        self._not_before = 0.0

    def take(self, work: str, settings: str) -> Any | None:
        """Gives the work to the spare. None where there is no spare."""
        actor, name = self._actor, self._name
        if actor is None:
            return None
        actor.take.remote(settings)
        self._actor, self._name, self._losses = None, "", 0
        self._taken[work] = name
        return actor

    def forget(self, work: str) -> None:
        """Its actor is no more, or is about to be ended."""
        self._taken.pop(work, None)

    def lost(self) -> list[str]:
        """Works whose actors have died, so that others must be made. Notices the death of the spare, too."""
        if self._actor is None and not self._taken:
            return []
        living = set(ray.util.list_named_actors())
        if self._actor is not None and self._name not in living:
            self._losses += 1
            self._not_before = self._clock() + pause_after(self._losses)
            self._actor, self._name = None, ""
        return [work for work, name in self._taken.items() if name not in living]

    def keep(self) -> None:
        """Makes a spare if there is none; after one that died, only after a pause."""
        if self._actor is None and self._clock() >= self._not_before:
            name = f"{self._prefix}{secrets.token_hex(8)}"
            self._actor, self._name = self._make(name), name

    def drop(self) -> None:
        """Ends the spare, if there is one."""
        actor, self._actor, self._name = self._actor, None, ""
        if actor is not None:
            ray.kill(actor)

    def adopt(self, names: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Works of actors that a former gateway has left, with these. Its spare is ended: it may have been started by
        another version.
        """
        for name in names:
            if name.startswith(self._prefix) and (actor := _found(name)) is not None:
                if work := _work_of(actor):
                    self._taken[work] = name
                    yield work, actor
                else:
                    ray.kill(actor)


def _found(name: str) -> Any | None:
    try:
        return ray.get_actor(name)
    except ValueError:  # it has ended just now
        return None


def _work_of(actor: Any) -> str:
    """Empty for none, and for an actor that does not answer: what it works on is begun anew."""
    try:
        return str(answer(actor.work.remote(), LOOK_PATIENCE))
    except (HostGone, CenoteError) as error:
        log.warning("a process of a former gateway is ended: %s", error)
        return ""
