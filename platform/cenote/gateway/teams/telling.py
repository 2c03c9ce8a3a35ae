"""What followers of a team are told: each event of an agent once, whichever process it happened in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from cenote.agent.events import EventType
from cenote.gateway.teams.ledger import Ledger
from cenote.gateway.teams.news import News
from cenote.gateway.teams.recorded import RecordedTeam
from cenote.team import TeamEvent

_TEXT = EventType.TEXT.value


class Teller:
    """Of one run. Prose is gathered until `flush`: a model writes it in pieces, and each write goes to the disk."""

    def __init__(self, ledger: Ledger, run: int, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._run = run
        self._clock = clock
        self._waiting: list[News] = []
        self._known: dict[tuple[str, str], int] = {}
        """Of an agent's task: events of a process before this one that are yet to come again."""

    def hear(self, record: RecordedTeam, event: TeamEvent) -> None:
        if record.is_rehearsed(event.agent):
            return
        news = News(
            number=0,
            at=self._clock(),
            run=self._run,
            agent=event.agent,
            place=record.place(event.agent),
            kind=event.type.value,
            content=event.content,
        )
        if news.kind == _TEXT:
            if not record.is_replayed(event.agent):
                self._gather(news)
        elif not self._was_told(news):
            self._waiting.append(news)
            self.flush()

    def take(self) -> list[News]:
        """What is yet to be written, for whoever writes it."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def flush(self) -> None:
        if self._waiting:
            self._ledger.tell(self._waiting)
            self._waiting = []

    def _gather(self, news: News) -> None:
        last = self._waiting[-1] if self._waiting else None
        if last is not None and (last.agent, last.place, last.kind) == (news.agent, news.place, _TEXT):
            self._waiting[-1] = replace(last, content=last.content + news.content)
        else:
            self._waiting.append(news)

    def _was_told(self, news: News) -> bool:
        key = (news.agent, news.place)
        if key not in self._known:
            self._known[key] = self._ledger.told(self._run, *key, _TEXT)
        if not self._known[key]:
            return False
        self._known[key] -= 1
        return True
