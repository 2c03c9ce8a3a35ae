"""The history of a runtime of a platform, as far as it was read: each event travels once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cenote_proto.v1 import runtime_pb2
from cenote_worker.history.history import History
from cenote_worker.history.messages import to_event

Ask = Callable[[runtime_pb2.ClientFrame], runtime_pb2.ServerFrame]
"""Blocks until the answer is there."""


class HistoryCopy:
    """Of one runtime. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._id = ""
        self._history = History()

    def read(self, ask: Ask) -> History:
        """All that has happened by now. Raises what `ask` raises."""
        more = True
        while more:
            question = runtime_pb2.HistoryQuestion(after=self._history.size)
            answer = ask(runtime_pb2.ClientFrame(history=question)).history
            with self._lock:
                more = self._take(answer, question.after)
        return self._history

    def _take(self, answer: runtime_pb2.History, after: int) -> bool:
        """Whether there is more to be read."""
        if answer.id != self._id:  # the first, or of a runtime that began anew on another machine
            self._id, self._history = answer.id, History(id=answer.id)
            if after:
                return True
        if after == self._history.size:  # else another thread has read them
            self._history.read(map(to_event, answer.events))
        return answer.more
