"""What a journal tells, as a supervisor takes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from cenote_proto.v1 import jail_pb2, journal_pb2
from cenote_security.errors import JailLostError
from cenote_security.sealed import SealedMemory
from cenote_worker.frames import Packet
from cenote_worker.hosted.kept_runtime import KeptRuntime
from cenote_worker.journal.jail_story import JailStory, Request
from cenote_worker.results import ExecutionResult
from cenote_worker.supervisor.account import Baseline
from cenote_worker.supervisor.autopsy import Death, Setback
from cenote_worker.supervisor.chronicle import Piece, Succession, Underway
from cenote_worker.supervisor.jail_ends import JailEnds
from cenote_worker.supervisor.protocol import Ask
from cenote_worker.supervisor.requests import OWNER, JailRequest, Listener, Outcome, Seat
from cenote_worker.wire.results import to_result

VANISHED = Death(
    reason="killed",
    text="the runtime's process and whatever held its jail beside it were ended together",
    outside=True,
)
"""Of a jail that the journal tells of and nobody holds."""


def seat_of(asked: journal_pb2.Asked) -> Seat:
    """Whose the request is."""
    return Seat(author=asked.author, private=asked.private) if asked.author else OWNER


def vanished(request: Request) -> Outcome:
    """What becomes of a request whose jail has vanished."""
    if request.ask is not Ask.EXECUTE:
        return JailLostError(VANISHED.describe())
    asked, error = request.asked, VANISHED.as_error()
    return ExecutionResult(success=False, error=error, step=asked.step, state="lost", author=asked.author)


def succession(
    kept: KeptRuntime,
    story: JailStory,
    ends: JailEnds,
    held: Sequence[Listener],
    listener: Listener | None,
    is_stored: Callable[[], bool],
) -> Succession:
    """How the former supervisor left its jail. listener: hears of the request that is under way, if one is.

    held: likewise, of each that was answered before. is_stored: see Succession.
    """
    under = None
    if story.request is not None:
        assert listener is not None
        under = _underway(story.request, listener)
    asked = story.request.asked if story.request is not None else journal_pb2.Asked()
    kills = max(asked.kills, story.jail.kills)
    return Succession(
        ready=story.jail.ready,
        number=story.jail.number,
        begun=Baseline(cpu=asked.cpu, written=asked.written, kills=kills),
        answered=[_underway(each, its) for each, its in zip(story.held.values(), held, strict=True)],
        underway=under,
        background=story.background.after(0)[1],
        head=story.jail.head,
        setback=_setback(story.setback),
        skip=lambda: kept.take_up(ends, story),
        is_stored=is_stored,
    )


def _setback(moved: journal_pb2.Moved | None) -> Setback | None:
    if moved is None:
        return None
    death = Death(reason=moved.reason, detail=moved.detail, text=moved.text, outside=moved.outside)
    return Setback(death=death, step=moved.step, before=moved.before)


def _underway(request: Request, listener: Listener) -> Underway:
    asked, interrupted, message = request.asked, request.interrupted, jail_pb2.Request()
    if asked.atomic:
        message.execute.atomic = True
    return Underway(
        number=asked.number,
        begun=Baseline(cpu=asked.cpu, written=asked.written, kills=asked.kills),
        request=JailRequest(
            request.ask,
            message,
            listener,
            timeout=asked.timeout or None,
            step=asked.step,
            key=asked.key,
            injection=asked.injection,
            seat=seat_of(asked),
            label=asked.label,
            code=asked.code.decode("utf-8", "surrogatepass"),
            cause=asked.cause,
            token=asked.token,
            undoes=to_result(asked.failed) if asked.HasField("failed") else None,
        ),
        started=asked.started,
        interrupted_at=interrupted.at if interrupted is not None else None,
        expired=interrupted is not None and interrupted.expired,
        # What was answered, or has printed, must have been sent.
        sent=request.sent or request.answered,
        missing=request.printed.after(0)[0],
        heard=list(_heard(request)),
    )


def _heard(request: Request) -> Iterator[Piece]:
    yield from request.printed.after(0)[1]
    for arrived in request.packets:
        yield Packet(arrived.data, [_memory(data) for data in arrived.attached])


def _memory(data: bytes) -> int:
    with SealedMemory.create([data]) as memory:
        return os.dup(memory.fileno())
