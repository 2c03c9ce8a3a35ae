"""Pages of teams: what is said beside what is run, as a waterfall; tokens and money; references handed over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from starlette.responses import Response

from cenote.doors.callers import Caller
from cenote.doors.console.session import CallerRoute, Visit, page_number, redirect
from cenote_security.auth.tokens import Scope
from cenote_security.errors import UnknownEntryError

if TYPE_CHECKING:  # see `jobs.py`
    from cenote.platform_team import PlatformTeam, TeamNews

TEAMS_OF_A_PAGE: Final = 100
EVENTS_OF_A_PAGE: Final = 60

MOST_CONTENT: Final = 1_000
"""Characters of one event there; the whole of it has a page of its own."""

_MODEL_CALL: Final = "model_call"
_BEGINS: Final = frozenset({"code", "patch"})
_ENDS: Final = frozenset(
    {"execution_output", "execution_error", "execution_output_exceeded", "security_error"}
)
_RUNS: Final = _BEGINS | _ENDS
"""Types of events about cells. All others are about what is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSpan:
    """A model call or a cell. begin, end: seconds since the epoch. event: its number.

    tokens, cost (US dollars): of a model call; None of a cell, and of an unknown price.
    """

    event: int
    agent: str
    kind: Literal["model", "cell"]
    begin: float
    end: float
    failed: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """begin: of the first span. seconds: to the end of the last. tokens, cost: of all."""

    spans: tuple[WorkSpan, ...]
    begin: float
    seconds: float
    tokens: int
    cost: float

    def left(self, span: WorkSpan) -> float:
        """In thousandths of the width."""
        return 1000 * (span.begin - self.begin) / self.seconds if self.seconds > 0 else 0.0

    def width(self, span: WorkSpan) -> float:
        """The same; never so small that it cannot be seen."""
        return max(1000 * (span.end - span.begin) / self.seconds, 3.0) if self.seconds > 0 else 1000.0


def waterfall(news: Iterable[TeamNews]) -> Waterfall:
    """Cells last from their code to their first output; of one that is still under way, nothing is known."""
    spans: list[WorkSpan] = []
    begun: dict[str, TeamNews] = {}
    for one in news:
        if one.type == _MODEL_CALL:
            spans.append(_call(one))
        elif one.type in _BEGINS:
            begun[one.agent] = one
        elif one.type in _ENDS and (first := begun.pop(one.agent, None)) is not None:
            failed = one.type in ("execution_error", "security_error")
            spans.append(
                WorkSpan(
                    event=first.number,
                    agent=one.agent,
                    kind="cell",
                    begin=first.at,
                    end=one.at,
                    failed=failed,
                )
            )
    spans.sort(key=lambda span: (span.begin, span.event))
    begin = min((span.begin for span in spans), default=0.0)
    end = max((span.end for span in spans), default=0.0)
    return Waterfall(
        spans=tuple(spans),
        begin=begin,
        seconds=end - begin,
        tokens=sum((span.prompt_tokens or 0) + (span.completion_tokens or 0) for span in spans),
        cost=sum(span.cost or 0.0 for span in spans),
    )


def _call(news: TeamNews) -> WorkSpan:
    taken = json.loads(news.content)
    nanodollars = int(taken["nanodollars"])
    return WorkSpan(
        event=news.number,
        agent=news.agent,
        kind="model",
        begin=news.at - float(taken["seconds"]),
        end=news.at,
        prompt_tokens=int(taken["prompt_tokens"]),
        completion_tokens=int(taken["completion_tokens"]),
        cost=nanodollars / 10**9 if nanodollars else None,
    )


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """text: the content, or the beginning of it. left: characters that are left out. is_cell: about a cell."""

    news: TeamNews
    text: str
    left: int
    is_cell: bool


def _shown(news: TeamNews) -> ShownEvent:
    content = news.content
    return ShownEvent(news, content[:MOST_CONTENT], max(len(content) - MOST_CONTENT, 0), news.type in _RUNS)


def _team(visit: Visit, caller: Caller) -> PlatformTeam:
    caller.require(Scope.TEAMS)
    return caller.the_platform().team(visit.request.path_params["team"])


async def _teams(visit: Visit, caller: Caller) -> Response:
    caller.require(Scope.TEAMS)
    after = visit.request.query_params.get("after", "")
    every = await asyncio.to_thread(caller.the_platform().teams)
    found = [team for team in every if team.name > after]
    return visit.page(
        "teams",
        title="Teams",
        teams=found[:TEAMS_OF_A_PAGE],
        following=found[TEAMS_OF_A_PAGE - 1].name if len(found) > TEAMS_OF_A_PAGE else "",
    )


async def _one(visit: Visit, caller: Caller) -> Response:
    team = _team(visit, caller)
    status = await asyncio.to_thread(team.status)
    newest = max(status.newest - EVENTS_OF_A_PAGE, 0)
    asked = page_number(visit.request.query_params.get("after", ""))
    after = newest if asked is None else asked
    news: Sequence[TeamNews] = await asyncio.to_thread(lambda: team.news(after=after, limit=EVENTS_OF_A_PAGE))
    is_at_work = any(run.state in ("waiting", "running") for run in status.runs)
    return visit.page(
        "team",
        title=f"Team {status.name}",
        team=status,
        is_at_work=is_at_work,
        follows=is_at_work and after == newest and visit.request.query_params.get("follow") == "1",
        waterfall=waterfall(news),
        events=[_shown(one) for one in news if one.type != _MODEL_CALL],
        earlier=max(after - EVENTS_OF_A_PAGE, 0) if after else None,
        later=news[-1].number if news and news[-1].number < status.newest else None,
    )


async def _event(visit: Visit, caller: Caller) -> Response:
    team, number = _team(visit, caller), visit.request.path_params["number"]
    found = await asyncio.to_thread(lambda: team.news(after=max(number - 1, 0), limit=1))
    if not found or found[0].number != number:
        raise UnknownEntryError("event", str(number))
    return visit.page("event", title=f"Event {number} of team {team.name}", team=team.name, one=found[0])


async def _cancel(visit: Visit, caller: Caller) -> Response:
    await visit.form()
    team = _team(visit, caller)
    await asyncio.to_thread(team.cancel, visit.request.path_params["number"])
    return redirect(visit.request.url.path.rpartition("/runs/")[0])


ROUTES: Final[tuple[CallerRoute, ...]] = (
    ("GET", "/teams", _teams),
    ("GET", "/teams/{team}", _one),
    ("GET", "/teams/{team}/events/{number:int}", _event),
    ("POST", "/teams/{team}/runs/{number:int}/cancel", _cancel),
)
