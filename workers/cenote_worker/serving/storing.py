"""A client has a runtime's state stored, or has the runtime put to sleep.

On a thread of its own, one per runtime: how long it takes is in the hands of the jail.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cenote_proto.v1 import runtime_pb2
from cenote_security.errors import UnavailableError, UsageError
from cenote_worker.begun_threads import begin_thread
from cenote_worker.checkpoints.store import CheckpointInfo
from cenote_worker.hosted.checkpoints import Checkpoints
from cenote_worker.serving.answers import Answer
from cenote_worker.serving.served import ServedRuntime

Store = Callable[[Checkpoints], CheckpointInfo]
"""What is done with the stored states; blocks."""


def put_to_sleep(states: Checkpoints) -> CheckpointInfo:
    """A Store. Nobody's call is lost by it: see Refill.rest."""
    states.rest()
    return states.last()


def target_of(message: runtime_pb2.GoBackTo) -> int | str:
    """The checkpoint that is named."""
    return message.label if message.WhichOneof("target") == "label" else message.number


def store(served: ServedRuntime, work: Store, told: Callable[[Answer], None]) -> None:
    """Begins it. told: called with the answer, on any thread.

    Raises UsageError for a runtime of which nothing is stored, UnavailableError while this is under way for another,
    and while a patch is applied: what is there then is nobody's state.
    """
    if served.hosted.patches.busy:
        raise UnavailableError("a patch or build of this runtime is under way; try again behind it")
    states = served.hosted.refill
    if not isinstance(states, Checkpoints):
        raise UsageError(
            "nothing of this runtime is stored; make one whose states are: platform.runtime(NAME, durable=True), or "
            "`cenote runtime create NAME --durable`"
        )
    if not served.storing.acquire(blocking=False):
        raise UnavailableError("the state of this runtime is being stored; try again when that is done")
    try:
        begin_thread("cenote-store", partial(_carry_out, served, states, work, told))
    except UnavailableError:
        served.storing.release()
        raise


def _carry_out(
    served: ServedRuntime, states: Checkpoints, work: Store, told: Callable[[Answer], None]
) -> None:
    answer: Answer
    try:
        answer = work(states)
    except Exception as error:  # noqa: BLE001  (whatever it is: whoever waits is told)
        answer = error
    finally:
        served.storing.release()
    told(answer)
