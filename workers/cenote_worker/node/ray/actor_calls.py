"""Asking actors: what they answer, what they raise, and what is to be done when their process has ended."""

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
"""Seconds for an actor that was killed to be there again."""

ANSWER_PATIENCE: Final = 180.0
"""Seconds for an answer: several times what a runtime takes to start on a busy machine. A process that was stopped,
not killed, gives none, and Ray does not notice."""

LOOK_PATIENCE: Final = 10.0
"""Seconds for an answer that takes no work. One that hangs keeps its runtimes, and whoever looks at all of them waits
for it: it is taken for dead, dismissed, and others go on with what it served, as behind any other death."""

LOOKS: Final = "looks"
"""Threads of an actor for such calls, so that they do not wait behind those that take long."""

LOOKERS: Final = 4

Method = TypeVar("Method", bound=Callable[..., Any])


def is_look(method: Method) -> Method:
    """Marks a method of an actor as a call of `LOOKS`.

    Where the method is and not where it is called: Ray's client, by which a cluster is joined as `ray://`, takes no
    group with a call.
    """
    marked: Method = ray.method(concurrency_group=LOOKS)(method)
    return marked


_PAUSE: Final = 0.2

_ENDING: Final = "the platform is being ended"

_LOOK_EVERY: Final = 0.5
"""Seconds between two looks whether anybody waits for an answer still."""

T = TypeVar("T")


def answer(reference: ray.ObjectRef[T], patience: float | None = None) -> T:
    """What an actor gives. patience: seconds for it.

    Raises the CenoteError that it raised; HostGone when its process or machine has gone or does not answer in time;
    UnavailableError for whatever else goes wrong.
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
    """What an actor gives at once unless it hangs. It is asked twice: after a pause of the whole machine the time for
    an answer is over before it could come. Raises as `answer` does.
    """
    try:
        return answer(look(), patience)
    except HostGone:
        return answer(look(), patience)


def answers(
    asked: Mapping[str, ray.ObjectRef[T]], patience: float, ending: threading.Event | None = None
) -> dict[str, T]:
    """What actors give that were asked at the same time, by their names; nothing of those that fail, or take longer.

    ending: once it is set nobody waits any longer. Raises UnavailableError.
    """
    return dict(arriving(asked, patience, ending))


def arriving(
    asked: Mapping[str, ray.ObjectRef[T]], patience: float, ending: threading.Event | None = None
) -> Iterator[tuple[str, T]]:
    """The same as they come, for whom the first good one is enough."""
    until = time.monotonic() + patience
    waited_for = dict(asked)
    while waited_for and (left := until - time.monotonic()) > 0 and not (ending and ending.is_set()):
        arrived = set(_first(list(waited_for.values()), min(left, _LOOK_EVERY)))
        for name in [name for name, reference in waited_for.items() if reference in arrived]:
            with suppress(HostGone, CenoteError):
                yield name, answer(waited_for.pop(name))


def _first(references: list[ray.ObjectRef[T]], patience: float) -> list[ray.ObjectRef[T]]:
    """Those that are there when the first one is."""
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
    """The answer of an actor that Ray starts again when it was killed, and that is then asked again.

    actor: finds it; raises ValueError while it is not there. ending: once it is set nobody waits any longer. check:
    called now and then while the answer is waited for; what it raises is raised.

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


def _arrived(
    reference: ray.ObjectRef[T], ending: threading.Event, check: Callable[[], None]
) -> ray.ObjectRef[T]:
    """An answer that is there, or the news that none will come."""
    deadline = time.monotonic() + ANSWER_PATIENCE
    while not ending.is_set():
        if time.monotonic() > deadline:
            raise UnavailableError("a process of the platform does not answer; `cenote status` tells more")
        if _first([reference], _LOOK_EVERY):
            return reference
        check()
    raise UnavailableError(_ENDING)


def raylet() -> str:
    """The short id of the one that this process belongs to."""
    return ray.get_runtime_context().get_node_id()[:SHORT]


def here() -> NodeAffinitySchedulingStrategy:
    """On this machine and no other."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
