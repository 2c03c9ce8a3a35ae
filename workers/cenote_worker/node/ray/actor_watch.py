"""Actors that hang are killed, so that Ray starts them again: Ray does not notice that a process was stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import ray

from cenote_security.errors import CenoteError
from cenote_worker.node.node import HostGone
from cenote_worker.node.ray.actor_calls import LOOK_PATIENCE, answer
from cenote_worker.node.state_log import StateLog

COMING_PATIENCE: Final = 120.0
"""Seconds for a starting actor to answer for the first time: on a busy machine its imports take long."""

Finding = Literal["waits", "ask", "hangs"]


@dataclass(slots=True)
class ActorHeartbeat:
    """The state of one actor, which Ray starts again when it ends. asked: the time of the unanswered call.

    is_up: whether it has answered since it was started. is_late: whether it was too late with an answer once.
    """

    asked: float
    is_up: bool = False
    is_late: bool = False

    def answered(self, now: float) -> None:
        """It has answered, and is called again."""
        self.asked, self.is_up, self.is_late = now, True, False

    def ended(self, now: float) -> None:
        """Its process has ended; another one is on its way."""
        self.asked, self.is_up, self.is_late = now, False, False

    def look(self, now: float) -> Finding:
        """What to do while it has not answered. It is called again once: after a pause of the whole machine the time
        for an answer is over before it could come.
        """
        if now - self.asked <= (LOOK_PATIENCE if self.is_up else COMING_PATIENCE):
            return "waits"
        if self.is_late:
            return "hangs"
        self.asked, self.is_late = now, True
        return "ask"


EVERY: Final = 2.0
"""Seconds between two calls to an actor that answers."""

SURE: Final = 5.0
"""Seconds of waiting for the second answer until `hangs` reports that none comes."""

_log = logging.getLogger("cenote.cluster")


@dataclass(slots=True, kw_only=True)
class _Watched:
    handle: Any
    pulse: ActorHeartbeat
    asked: ray.ObjectRef[None]


class ActorWatch:
    """actors: the ones to watch, by any name, each with a method `is_there`, which `is_look`."""

    def __init__(
        self, actors: Callable[[], Mapping[str, Any]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._actors = actors
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._state = StateLog(_log, "no process could be asked whether it is there")

    def run(self, ending: threading.Event) -> None:
        """Watches until `ending` is set."""
        while not ending.wait(EVERY):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001  (Ray raises various errors while its head is away)
                self._state.failed(error, expected=isinstance(error, CenoteError))
            else:
                self._state.worked()

    def hangs(self, name: str) -> bool:
        """Whether callers should not wait for it now. It is killed, or goes on after all, within some seconds."""
        watched = self._watched.get(name)
        if watched is None or not watched.pulse.is_late:
            return False
        return self._clock() - watched.pulse.asked > SURE

    def look(self) -> None:
        """Calls each actor, takes the answers, and kills those that were called twice in vain."""
        actors = self._actors()
        self._watched = {name: self._of(name, handle) for name, handle in actors.items()}
        for name, watched in self._watched.items():
            if ray.wait([watched.asked], timeout=0)[0]:
                self._hear(watched)
            else:
                self._wait_for(name, watched)

    def _of(self, name: str, handle: Any) -> _Watched:
        watched = self._watched.get(name)
        if watched is None or watched.handle != handle:
            return _Watched(handle=handle, pulse=ActorHeartbeat(self._clock()), asked=_ask(handle))
        return watched

    def _hear(self, watched: _Watched) -> None:
        now = self._clock()
        try:
            answer(watched.asked)
        except HostGone:
            watched.pulse.ended(now)
        except CenoteError:  # an error of the cluster, which is reported elsewhere
            return
        else:
            watched.pulse.answered(now)
        watched.asked = _ask(watched.handle)

    def _wait_for(self, name: str, watched: _Watched) -> None:
        now = self._clock()
        match watched.pulse.look(now):
            case "ask":
                watched.asked = _ask(watched.handle)
            case "hangs":
                _log.error("the process %s does not answer; it is killed, and started again", name)
                ray.kill(watched.handle, no_restart=False)
                watched.pulse.ended(now)
                watched.asked = _ask(watched.handle)


def _ask(handle: Any) -> ray.ObjectRef[None]:
    asked: ray.ObjectRef[None] = handle.is_there.remote()
    return asked
