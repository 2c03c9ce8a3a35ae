"""Files that clients wrote into one jail, on their way into another that is to be like it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cenote_worker.history.history import History
from cenote_worker.history.step import StepRecord
from cenote_worker.hosted import asks
from cenote_worker.hosted.files import FileAsk
from cenote_worker.hosted.listeners import Delivery
from cenote_worker.hosted.refusals import as_error
from cenote_worker.supervisor.edge import RefusedReply
from cenote_worker.supervisor.requests import OWNER

if TYPE_CHECKING:
    from cenote_worker.hosted.runtime import HostedRuntime


def written_by(history: History, records: Iterable[StepRecord] = ()) -> dict[str, bytes]:
    """What clients wrote before the first step, and at these; the last of each file, without what is not kept."""
    digests = dict(history.begun_files)
    for record in records:
        if record.kind == "upload":
            digests |= dict.fromkeys(record.names, record.content)
    kept = {path: history.files.get(digest) for path, digest in digests.items()}
    return {path: data for path, data in kept.items() if data is not None}


def write_all(runtime: HostedRuntime, files: Mapping[str, bytes]) -> None:
    """Into its jail, as no step of its own. Blocks. Raises what keeps one of them from being there."""
    for path, data in files.items():
        waiting = Delivery()
        runtime.submissions.submit(asks.file(FileAsk.written(path, data), waiting, OWNER))
        outcome = waiting.outcomes.get()
        if isinstance(outcome, RefusedReply):
            raise as_error(outcome, path)
        if isinstance(outcome, Exception):
            raise outcome
