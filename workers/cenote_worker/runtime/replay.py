"""Inputs of a repeated step: the recorded answers of its host calls, and the files that clients wrote before it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cenote_worker.execution.results import HostFailure
from cenote_worker.history.history import History
from cenote_worker.history.host_calls import ArgumentDigests
from cenote_worker.history.step import HostCallRecord, HostEffect, StepRecord
from cenote_worker.history.tree import StepTree
from cenote_worker.runtime import jail_requests
from cenote_worker.runtime.jail_requests import WorkdirRequest, as_error
from cenote_worker.runtime.recorder import WaitingListener
from cenote_worker.supervisor.channels.host_calls import HostAnswer, HostCall, HostCallChannel, HostHandler
from cenote_worker.supervisor.frame_parser import RefusedReply
from cenote_worker.supervisor.requests import OWNER
from cenote_worker.transport.content import Content

if TYPE_CHECKING:
    from cenote_worker.runtime.runtime import HostedRuntime


REFUSED = HostFailure("RuntimeError", "this call has an effect outside, which is not repeated")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecordedCall:
    """A call that has no recorded answer, and that was not made."""

    target: str
    method: str


class HostCallReplay:
    """The recorded answers of one step, each to be given once. Used under the lock of its HostCallReplays."""

    def __init__(self, calls: Iterable[HostCallRecord], *, tentative: bool, alone: bool = False) -> None:
        """tentative: the step may be run with the wrong state, so that only pure functions may be called anew.

        alone: no function may be called, since there may be no client to answer.
        """
        self._left = list(calls)
        self._digests = ArgumentDigests()
        self._allowed: frozenset[HostEffect] = frozenset(("pure",) if tentative else ("pure", "idempotent"))
        if alone:
            self._allowed = frozenset()
        self.stopped: UnrecordedCall | None = None
        """The first call that was refused. All later calls are refused too."""

    def answer(self, call: HostCall, effect: HostEffect) -> HostAnswer | None:
        """The recorded answer to an equal call, or the refusal of this call; None for one that is to be made."""
        if self.stopped is not None:
            return REFUSED
        digest = "" if call.opaque is not None or call.reference else self._digests.of(call.arguments)
        for index, known in enumerate(self._left):
            given = _given(known)
            if given is not None and digest and (call.target, call.method, digest) == _key(known):
                del self._left[index]
                return given
        if effect in self._allowed:
            return None
        self.stopped = UnrecordedCall(target=call.target, method=call.method)
        return REFUSED


def made_calls(tree: StepTree, record: StepRecord) -> tuple[HostCallRecord, ...]:
    """The calls of a step, and of the steps that it stands for: the outside effects of an older version remain, even
    if the latest one did not call for them. Calls that several versions made were answered once, so each counts once.
    """
    calls = list(record.host_calls)
    while record.origin and record.origin in tree:
        record, known = tree.get(record.origin), Counter(map(_key, calls))
        for call in record.host_calls:
            if known[_key(call)]:
                known[_key(call)] -= 1
            else:
                calls.append(call)
    return tuple(calls)


class HostCallReplays:
    """A HostHandler in front of another one, which gets only the calls without a recorded answer."""

    def __init__(self, hosts: HostHandler, effect_of: Callable[[str], HostEffect]) -> None:
        self._hosts = hosts
        self._effect_of = effect_of
        self._lock = threading.Lock()
        self._replay: tuple[HostCallReplay, Callable[[], object]] | None = None
        self._spared = 0

    def begin(self, replay: HostCallReplay, stop: Callable[[], object]) -> None:
        """Answers the next cell from this replay. stop: called when a call was refused; must not block."""
        with self._lock:
            self._replay = replay, stop

    def end(self) -> None:
        """Calls are made again."""
        with self._lock:
            self._replay = None

    def spare(self) -> None:
        """One of a runtime's two jails is about to end: references that both have end with the other."""
        with self._lock:
            self._spared += 1

    def call(self, line: HostCallChannel, call: HostCall) -> None:
        with self._lock:
            answer, stop = self._answer(call)
        if answer is None:
            self._hosts.call(line, call)
            return
        call.close()
        line.answer(call.id, answer)
        if stop is not None:
            stop()

    def cancel(self, call_id: int) -> None:
        self._hosts.cancel(call_id)

    def release(self, reference: int) -> None:
        self._hosts.release(reference)

    def ended(self) -> None:
        with self._lock:
            spared, self._spared = self._spared > 0, max(self._spared - 1, 0)
        if not spared:
            self._hosts.ended()

    def _answer(self, call: HostCall) -> tuple[HostAnswer | None, Callable[[], object] | None]:
        if self._replay is None:
            return None, None
        replay, stop = self._replay
        answer = replay.answer(call, self._effect_of(call.target))
        return answer, stop if answer is REFUSED else None


def _key(known: HostCallRecord) -> tuple[str, str, str]:
    return known.target, known.method, known.digest


def _given(known: HostCallRecord) -> HostAnswer | None:
    """The recorded answer; None when it was not stored."""
    if known.error is not None:
        return known.error
    if known.reply is None:
        return None
    return Content(size=len(known.reply), count=known.parts, inline=known.reply)


def written_by(history: History, records: Iterable[StepRecord] = ()) -> dict[str, bytes]:
    """Contents that clients wrote before the first step, and at these; the last of each file, if it is stored."""
    digests = dict(history.begun_files)
    for record in records:
        if record.kind == "upload":
            digests |= dict.fromkeys(record.names, record.content)
    kept = {path: history.files.get(digest) for path, digest in digests.items()}
    return {path: data for path, data in kept.items() if data is not None}


def write_all(runtime: HostedRuntime, files: Mapping[str, bytes]) -> None:
    """Writes the files into its jail, without a step of their own. Blocks. Raises the error of a failed write."""
    for path, data in files.items():
        waiting = WaitingListener()
        runtime.submissions.submit(
            jail_requests.file_request(WorkdirRequest.written(path, data), waiting, OWNER)
        )
        outcome = waiting.outcomes.get()
        if isinstance(outcome, RefusedReply):
            raise as_error(outcome, path)
        if isinstance(outcome, Exception):
            raise outcome
