"""Actors that hang are killed, so that Ray starts them again: of one that was stopped it notices nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import ray

from cenote_security.errors import CenoteError
from cenote_worker.cluster.node import HostGone
from cenote_worker.cluster.pulse import Pulse
from cenote_worker.cluster.ray_calls import answer
from cenote_worker.cluster.state_log import StateLog

EVERY: Final = 2.0
"""Seconds between two questions to one that answers."""

SURE: Final = 5.0
"""Seconds that the second answer is waited for until others are told that none comes."""

_log = logging.getLogger("cenote.cluster")


@dataclass(slots=True, kw_only=True)
class _Watched:
    handle: Any
    pulse: Pulse
    asked: ray.ObjectRef[None]


class ActorWatch:
    """actors: those that are to be there, by any name, each with a method `is_there`, which `is_look`."""

    def __init__(
        self, actors: Callable[[], Mapping[str, Any]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._actors = actors
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._state = StateLog(_log, "no process could be asked whether it is there")

    def run(self, ending: threading.Event) -> None:
        """Until that is set."""
        while not ending.wait(EVERY):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001  (whatever Ray raises while its head is away: the next look may do better)
                self._state.failed(error, expected=isinstance(error, CenoteError))
            else:
                self._state.worked()

    def hangs(self, name: str) -> bool:
        """Whether nobody should wait for it now. It is killed, or goes on after all, within some seconds."""
        watched = self._watched.get(name)
        if watched is None or not watched.pulse.is_late:
            return False
        return self._clock() - watched.pulse.asked > SURE

    def look(self) -> None:
        """Asks each, takes what has come, and kills what was asked twice in vain."""
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
            return _Watched(handle=handle, pulse=Pulse(self._clock()), asked=_ask(handle))
        return watched

    def _hear(self, watched: _Watched) -> None:
        now = self._clock()
        try:
            answer(watched.asked)
        except HostGone:
            watched.pulse.ended(now)
        except CenoteError:  # the cluster's trouble, of which others tell
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
