"""Runs the loops of teams and jobs as Ray actors: one per work that has something to do. Ray restarts one that was
killed; one that was made ahead, see `SpareActors`, is replaced by the gateway.

No code of a user or a model runs in these processes: they are clients of runtimes, and call models.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import RayError

from cenote.doors.otlp import export_to
from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.process import logs
from cenote.gateway.store.database import Database, database_place
from cenote.gateway.work.process_unsafe import environment
from cenote.gateway.work.processes import Spare
from cenote.gateway.work.settings import OrchestratorSettings, WorkLoop, loop_of, loop_type
from cenote.gateway.work.worker_slots import WorkerSlots
from cenote.gateway.work.workload import (
    LOOK_EVERY,
    MAX_FAILURES,
    SWEEP_EVERY,
    SupersededError,
    Workload,
    pause_after,
    works_of,
)
from cenote_security.errors import CenoteError, UnknownEntryError, UsageError
from cenote_worker.node.node import HostGone
from cenote_worker.node.ray.actor_calls import LOOK_PATIENCE, answer, here
from cenote_worker.node.state_log import StateLog

log = logging.getLogger("cenote.orchestrators")

MAX_RESTARTS: Final = 100
"""Restarts of one actor, which ends when its work is done: so many kills are no accident."""

_SPARE: Final = "spare-"
"""The beginning of the names of spare actors."""


class OrchestratorActor:
    """A WorkLoop as a Ray actor. It works from its constructor on: Ray repeats only that after a restart.

    settings: without a work for an actor that is made ahead, which imports what it will need and waits for `take`.
    """

    def __init__(self, settings: str, allowed: tuple[str, ...]) -> None:
        kept = environment(allowed)
        for name in set(os.environ) - set(kept):
            if not name.startswith("RAY_"):
                del os.environ[name]
        os.environ.update(kept)
        self._settings = OrchestratorSettings.from_json(settings)
        if self._settings.log_json:
            logs.set_up(logging.WARNING, as_json=True)
        if self._settings.otlp:
            export_to(self._settings.otlp, "cenote")  # Ray ends this process at once: unsent traces are lost
        self._loop: WorkLoop | None = None
        self._woken = threading.Event()
        self._idle = threading.Event()
        if self._settings.work:
            self._woken.set()
        else:
            loop_type(self._settings.kind)  # here, where a failure ends the actor
        threading.Thread(target=self._work, name="cenote-work", daemon=True).start()

    def take(self, settings: str) -> None:
        """Gives work to an actor that was made ahead. It has one work in its life: nothing of another's is in it."""
        if self._settings.work:
            raise UsageError(f"this process works on {self._settings.work}")
        self._settings = OrchestratorSettings.from_json(settings)
        self._woken.set()

    def work(self) -> str:
        """The id of its work; empty while it has none."""
        return self._settings.work

    def wake(self) -> None:
        """There is something to do."""
        self._idle.clear()
        self._woken.set()

    def settle(self, patience: float) -> bool:
        """Waits until there is nothing to do. Returns False on timeout."""
        return self._idle.wait(patience)

    def make_room(self) -> None:
        """See WorkLoop. `settle` returns True when it has."""
        if self._loop is not None:
            self._loop.make_room()

    def _work(self) -> None:
        failures = 0
        while self._woken.wait():
            self._woken.clear()
            if not self._settings.work:  # Ray keeps no order among calls: this is the one after `take`
                continue
            try:
                self._work_once()
                failures = 0
            except SupersededError:
                pass
            except DatabaseUnavailableError as error:  # this says nothing about the work
                log.error("%s waits: %s", self._settings.work, error)
                time.sleep(LOOK_EVERY)
                self._woken.set()
            except Exception as error:  # a process would end here, and be restarted
                failures += 1
                known = isinstance(error, CenoteError)
                log.error("%s cannot be worked on: %s", self._settings.work, error, exc_info=not known)
                failures = self._again(failures)
            if not self._woken.is_set():
                self._idle.set()

    def _work_once(self) -> None:
        with Database(database_place(self._settings.state)) as database:
            is_open = works_of(self._settings.kind, database).is_open(self._settings.work)
        if is_open:
            self._loop = loop_of(self._settings)
            self._loop.work()

    def _again(self, failures: int) -> int:
        """Returns how many tries in a row have failed: none where that has ended something, such as a run."""
        pause = pause_after(failures)
        if failures >= MAX_FAILURES:
            reason = f"{failures} tries did not get any further; the log of the cluster says why"
            try:
                with Database(database_place(self._settings.state)) as database:
                    works = works_of(self._settings.kind, database)
                    before = works.progress(self._settings.work)
                    works.stuck(self._settings.work, reason)
                    if works.progress(self._settings.work) != before:
                        failures = 0
            except (CenoteError, OSError) as error:
                log.error(
                    "%s is tried on: it could not be noted that it is stuck: %s", self._settings.work, error
                )
        time.sleep(pause)
        self._woken.set()
        return failures


class WaitingActor:
    """See WaitingProcess. Ray does not restart it: a restarted one would not know its work."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self.actor = actor

    def give(self, settings: str) -> None:
        self.actor.take.remote(settings)

    def wait(self, _patience: float) -> bool:
        return self.name not in ray.util.list_named_actors()

    def end(self) -> None:
        ray.kill(self.actor)


class SpareActors:
    """The spare of one gateway, and those that have taken work, which keep their names. Not thread-safe.

    The gateway replaces one that has died, from what is recorded.
    """

    def __init__(self, kind: str, make: Callable[[str], Any]) -> None:
        """make: an actor of this name, which waits for work."""
        self._prefix = f"{_SPARE}{kind}/"
        self._make = make
        self._spare = Spare(self._named)
        self._taken: dict[str, str] = {}
        """Names of actors by their work."""
        self.keep, self.drop = self._spare.keep, self._spare.drop

    def _named(self) -> WaitingActor:
        name = f"{self._prefix}{secrets.token_hex(8)}"
        return WaitingActor(name, self._make(name))

    def take(self, work: str, settings: str) -> Any | None:
        """Gives the work to the spare. None where there is no spare."""
        spare = self._spare.take(settings)
        if spare is None:
            return None
        self._taken[work] = spare.name
        return spare.actor

    def forget(self, work: str) -> None:
        """Its actor is no more, or is about to be ended."""
        self._taken.pop(work, None)

    def lost(self) -> list[str]:
        """Works whose actors have died, so that others must be made."""
        living = set(ray.util.list_named_actors()) if self._taken else ()
        return [work for work, name in self._taken.items() if name not in living]

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


class SpareActor(OrchestratorActor):
    """One that is made ahead: the name that its process shows."""


class RayOrchestrators:
    """See Orchestrators. On the gateway's machine, where the store and the secrets are."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        works: Workload,
        allowed: Collection[str] = (),
        places: WorkerSlots | None = None,
        is_drained: Callable[[], bool] = lambda: False,
    ) -> None:
        """settings: those of all works. is_drained: whether this machine is to be left; it gets no spare then."""
        self._settings = settings
        self._works = works
        self._prefix = f"{works.kind}/"
        self._allowed = tuple(allowed)
        self._where = ("", "")
        self._lock = threading.Lock()
        self._actors: dict[str, Any] = {}
        self._places = WorkerSlots(works.share) if places is None else places
        self._spares = SpareActors(works.kind, self._spare)
        self._is_drained = is_drained
        self._leaving: set[str] = set()
        """Works that were asked to make room."""
        self._closing = threading.Event()
        self._woken = threading.Event()
        """Set to have the next sweep at once."""
        self._sweeps = StateLog(log, f"{works.kind}s that are worked on could not be looked after")
        self._beginnings = StateLog(log, f"work on a {works.kind} could not be begun")
        self._sweeper = threading.Thread(target=self._sweep, name=f"cenote-{works.kind}s", daemon=True)

    def begin(self, address: str, authority: str) -> None:
        self._where = address, authority
        self._adopt()
        self._sweeper.start()
        for work in self._works.at_work():
            self.ensure(work)

    def ensure(self, work: str) -> None:
        with self._lock:
            if work in self._actors:
                self._actors[work].wake.remote()
            else:
                self._begin(self._places.ask(work, self._works.tenant(work)))

    def _begin(self, works: Sequence[str]) -> None:
        """Starts works that have a slot. Raises nothing: the next sweep retries."""
        for work in works:
            try:
                if work not in self._actors:
                    settings = self._settings.of(work, self._where).to_json()
                    self._actors[work] = self._spares.take(work, settings) or self._actor(work)
                    self._woken.set()  # the next spare begins now: the next work may come soon
                self._actors[work].wake.remote()
            except Exception as error:  # noqa: BLE001  (whatever Ray raises while its head is away)
                self._beginnings.failed(error, expected=isinstance(error, CenoteError | RayError))
            else:
                self._beginnings.worked()

    def settle(self, work: str, patience: float) -> None:
        with self._lock:
            actor = self._actors.pop(work, None)
            self._spares.forget(work)
            self._give_up_place(work)
        if actor is not None:
            try:
                answer(actor.settle.remote(patience), patience)
            except (HostGone, CenoteError) as error:
                log.warning("%s is ended at its work: %s", work, error)
            ray.kill(actor)

    def close(self, *, orderly: bool = True) -> None:
        with self._lock:
            self._closing.set()
            self._woken.set()
            actors, self._actors = list(self._actors.values()), {}
            self._spares.drop()
        for actor in actors if orderly else ():
            ray.kill(actor)
        if self._sweeper.is_alive():
            self._sweeper.join()

    def _adopt(self) -> None:
        """Adopts actors of a former gateway. One whose work ended meanwhile is idle; one whose work was being deleted
        would never be ended otherwise.
        """
        names = ray.util.list_named_actors()
        for name in names:
            if name.startswith(self._prefix):
                with suppress(ValueError):  # it has ended just now
                    self._adopt_one(name.removeprefix(self._prefix), ray.get_actor(name))
        for work, actor in self._spares.adopt(names):
            if not self._adopt_one(work, actor):
                self._spares.forget(work)

    def _adopt_one(self, work: str, actor: Any) -> bool:
        if work in self._actors or not self._knows(work):
            ray.kill(actor)
            return False
        self._actors[work] = actor
        self._places.ask(work, self._works.tenant(work))
        return True

    def _knows(self, work: str) -> bool:
        try:
            self._works.tenant(work)
        except UnknownEntryError:
            return False
        return True

    def _actor(self, work: str) -> Any:
        settings = self._settings.of(work, self._where)
        return self._made(OrchestratorActor, self._prefix + work, MAX_RESTARTS, settings)

    def _spare(self, name: str) -> Any:
        return self._made(SpareActor, name, 0, self._settings)

    def _made(
        self, kind: type[OrchestratorActor], name: str, restarts: int, settings: OrchestratorSettings
    ) -> Any:
        return (
            ray.remote(kind)
            .options(
                name=name,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=restarts,
                max_concurrency=4,
                scheduling_strategy=here(),
            )
            .remote(settings.to_json(), self._allowed)
        )

    def _sweep(self) -> None:
        while not self._closing.is_set():
            self._woken.wait(SWEEP_EVERY)
            self._woken.clear()
            if self._closing.is_set():
                return
            self._sweeps.attempt(self._look_after_all, CenoteError, RayError)

    def _look_after_all(self) -> None:
        self._dismiss_idle()
        self._look_after_spare()

    def _dismiss_idle(self) -> None:
        with self._lock:
            if self._works.can_make_room and (overstaying := self._places.overstaying) in self._actors:
                self._leaving.add(overstaying)
                self._actors[overstaying].make_room.remote()
            for work in list(self._actors):
                if not self._works.is_open(work) or (work in self._leaving and self._has_left(work)):
                    ray.kill(self._actors[work])
                    del self._actors[work]
                    self._spares.forget(work)
                    self._give_up_place(work)
            for work in self._spares.lost():
                self._spares.forget(work)
                self._actors.pop(work, None)
            self._begin([work for work in self._places.holders if work not in self._actors])
            # Works that made room, and those whose state could not be read while the database was away.
            for work in self._works.at_work():
                if work not in self._places:
                    self._begin(self._places.ask(work, self._works.tenant(work)))

    def _look_after_spare(self) -> None:
        """It counts as one of the processes for which there is room."""
        wanted = self._works.expects_more() and not self._is_drained()
        with self._lock:
            if wanted and self._places.has_room and not self._closing.is_set():
                self._spares.keep()
            else:
                self._spares.drop()

    def _has_left(self, work: str) -> bool:
        try:
            return bool(answer(self._actors[work].settle.remote(0.0), SWEEP_EVERY))
        except HostGone:  # Ray restarts it
            return False

    def _give_up_place(self, work: str) -> None:
        self._leaving.discard(work)
        if not self._closing.is_set():
            self._begin(self._places.leave(work))
