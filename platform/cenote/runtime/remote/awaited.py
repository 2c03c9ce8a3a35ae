"""Calls to a runtime of a platform that are waited for, on the loop of its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cenote.runtime.remote import frames
from cenote.runtime.remote.call import FRAMES, Answer, Call
from cenote.runtime.remote.session import Session
from cenote_proto.scalars import utf8_text
from cenote_proto.v1 import runtime_pb2
from cenote_worker.hosted.injection import Injection
from cenote_worker.hosted.refusals import as_error
from cenote_worker.supervisor.edge import RefusedReply


async def put(session: Session, injection: Injection, key: str, *, replace: bool) -> None:
    """Puts it into the runtime. Raises the error that says why it cannot be. key: as of any request."""
    frame, content = frames.injection(injection, replace=replace)
    frame.key = utf8_text(key)
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    call = Call(frame=frame, settle=_settling(answered), limit=FRAMES, changes=True, content=content)
    session.call(call)
    given = await answered
    if isinstance(given, RefusedReply):
        raise as_error(given, ", ".join(injection.names))
    if isinstance(given, Exception):
        raise given


async def answer(
    session: Session, frame: runtime_pb2.ClientFrame, *, changes: bool = False
) -> runtime_pb2.ServerFrame:
    """The one frame that is the answer. Raises the error that came instead."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    session.call(Call(frame=frame, settle=_settling(answered), limit=FRAMES, changes=changes))
    given = await answered
    if isinstance(given, Exception):
        raise given
    return given if isinstance(given, runtime_pb2.ServerFrame) else runtime_pb2.ServerFrame()


def _settling(future: asyncio.Future[Answer]) -> Callable[[Answer], None]:
    """Gives the answer to whoever waits, if anybody still does."""

    def settle(answer: Answer) -> None:
        if not future.done():
            future.set_result(answer)

    return settle
