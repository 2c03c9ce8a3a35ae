"""Calls to actors: their answers, the errors they raise, and how calls react when an actor's process has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import (
    ActorUnschedulableError,
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cenote_security.errors import CenoteError, UnavailableError
from cenote_worker.node.machine import SHORT
from cenote_worker.node.node import HostGone

THREADS: Final = 64
"""Calls to one actor at once. Each may wait for a jail to start."""

PATIENCE: Final = 60.0
"""Seconds for an actor that was killed to run again."""

ANSWER_PATIENCE: Final = 180.0
"""Seconds for an answer: several times what a runtime takes to start on a busy machine. A process that was stopped,
not killed, gives none, and Ray does not notice."""

LOOK_PATIENCE: Final = 10.0
"""Seconds for an answer that takes no work. A host that hangs blocks its runtimes, and every caller that reads the
status of all: it is taken for dead, dismissed, and others serve its runtimes, as after any other death."""

LOOKS: Final = "looks"
"""Threads of an actor for such calls, so that they do not wait after those that take long."""

LOOKERS: Final = 4

Method = TypeVar("Method", bound=Callable[..., Any])


def is_look(method: Method) -> Method:
    """Marks a method of an actor as a call of `LOOKS`.

    At the method and not at the call: Ray's client, by which a cluster is joined as `ray://`, takes no group with a
    call.
    """
    marked: Method = ray.method(concurrency_group=LOOKS)(method)
    return marked


_PAUSE: Final = 0.2

_ENDING: Final = "the platform is being ended"

_LOOK_EVERY: Final = 0.5
"""Seconds between two checks whether the caller still waits for an answer."""

T = TypeVar("T")


def answer(reference: ray.ObjectRef[T], patience: float | None = None) -> T:
    """The answer of an actor. patience: seconds for it.

    Raises the CenoteError that it raised; HostGone when its process or machine has gone or does not answer in time;
    UnavailableError for anything else that goes wrong.
    """
    try:
        return ray.get(reference, timeout=patience)
    except (RayActorError, ActorUnschedulableError, GetTimeoutError) as error:
        raise HostGone(str(error)) from error
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, CenoteError):
            raise cause from None
        raise UnavailableError(f"a process of the platform failed: {cause!r}") from error
    except RayError as error:
        raise UnavailableError(f"the cluster does not answer: {error}") from error


def looked_up(look: Callable[[], ray.ObjectRef[T]], patience: float = LOOK_PATIENCE) -> T:
    """The answer of an actor that answers at once unless it hangs. It is called twice: after a pause of the whole
    machine the time for an answer is over before it could come. Raises as `answer` does.
    """
    try:
        return answer(look(), patience)
    except HostGone:
        return answer(look(), patience)


def answers(
    asked: Mapping[str, ray.ObjectRef[T]], patience: float, ending: threading.Event | None = None
) -> dict[str, T]:
    """The answers of actors that were called at the same time, by their names; without those that fail, or take
    longer.

    ending: ends the wait once it is set. Raises UnavailableError.
    """
    return dict(arriving(asked, patience, ending))


def arriving(
    asked: Mapping[str, ray.ObjectRef[T]], patience: float, ending: threading.Event | None = None
) -> Iterator[tuple[str, T]]:
    """The same, as they come, for a caller that needs only the first good one."""
    until = time.monotonic() + patience
    waited_for = dict(asked)
    while waited_for and (left := until - time.monotonic()) > 0 and not (ending and ending.is_set()):
        arrived = set(_first(list(waited_for.values()), min(left, _LOOK_EVERY)))
        for name in [name for name, reference in waited_for.items() if reference in arrived]:
            with suppress(HostGone, CenoteError):
                yield name, answer(waited_for.pop(name))


def _first(references: list[ray.ObjectRef[T]], patience: float) -> list[ray.ObjectRef[T]]:
    """The references that are ready when the first one is."""
    try:
        return ray.wait(references, timeout=patience)[0]
    except RayError as error:
        raise UnavailableError(f"the cluster does not answer: {error}") from error


def ask(
    actor: Callable[[], Any],
    what: str,
    *arguments: object,
    ending: threading.Event | None = None,
    check: Callable[[], None] = lambda: None,
) -> Any:
    """The answer of an actor that Ray starts again when it was killed, and that is then called again.

    actor: finds it; raises ValueError while it does not exist. ending: ends the wait once it is set. check: called
    now and then during the wait; its errors are raised.

    Raises what `answer` does, but never HostGone; UnavailableError when no answer comes, too.
    """
    ending = ending or threading.Event()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return answer(_arrived(getattr(actor(), what).remote(*arguments), ending, check))
        except CenoteError:  # its answer; some of those are ValueErrors too
            raise
        except (HostGone, ValueError) as error:
            if time.monotonic() > deadline:
                raise UnavailableError(f"a process of the platform does not come back: {error}") from error
            if ending.wait(_PAUSE):
                raise UnavailableError(_ENDING) from error


class ActorLookup:
    """The handle of an actor, for `ask`: looked up once, and again after each call over it that failed.

    A look-up and a new handle cost Ray's processes several times what a call does.
    """

    def __init__(self, look: Callable[[], Any]) -> None:
        """look: raises ValueError while there is no such actor."""
        self._look = look
        self._handle: Any = None

    def for_call(self) -> Callable[[], Any]:
        """The `actor` of one call of `ask`, which calls it again only after a failure."""
        known = iter(() if self._handle is None else (self._handle,))

        def find() -> Any:
            handle = next(known, None)
            if handle is None:
                handle = self._handle = self._look()
            return handle

        return find


def _arrived(
    reference: ray.ObjectRef[T], ending: threading.Event, check: Callable[[], None]
) -> ray.ObjectRef[T]:
    """The reference, once its answer is there, or is known never to come."""
    deadline = time.monotonic() + ANSWER_PATIENCE
    while not ending.is_set():
        if time.monotonic() > deadline:
            raise UnavailableError("a process of the platform does not answer; `cenote status` tells more")
        if _first([reference], _LOOK_EVERY):
            return reference
        check()
    raise UnavailableError(_ENDING)


def raylet() -> str:
    """The short id of this process's raylet."""
    return ray.get_runtime_context().get_node_id()[:SHORT]


def here() -> NodeAffinitySchedulingStrategy:
    """On this machine and no other."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
