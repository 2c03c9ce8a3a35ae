"""Pages for operators: the fleet in curves, shared values, requests to the network, the audit log, the machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from cenote.connection import AuditVerification, NodeInfo
from cenote.doors.callers import Caller, Callers
from cenote.doors.console import jobs, teams
from cenote.doors.console.figures import EVERY, PLANS, FigureHistory, chart
from cenote.doors.console.session import CallerRoute, PageRoute, Section, Visit, for_callers
from cenote.runtime.machine_report import MachineExams, MachineReport, machine
from cenote_security.auth.tokens import Scope

SECTIONS: Final[tuple[Section, ...]] = (
    ("/", "Runtimes"),
    ("/fleet", "Fleet"),
    ("/jobs", "Jobs"),
    ("/teams", "Teams"),
    ("/references", "References"),
    ("/network", "Network"),
    ("/audit", "Audit"),
    ("/doctor", "Doctor"),
)

NODES_SHOWN: Final = 200

PATIENCE: Final = 0.15
"""Seconds that a page waits for an examination of the machine; it is shown when the page loads itself again."""

OF_A_PAGE: Final = 100
"""References, or entries of the audit log."""

MOST_FACTS: Final = 600
"""Characters of an entry's facts."""


class Operations:
    """Pages of a server or a platform, beside those of its runtimes; with the samples for the curves."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._figures = FigureHistory()
        self._exams = MachineExams()
        self._examining: asyncio.Future[MachineReport] | None = None

    def routes(self) -> Iterator[PageRoute]:
        own: tuple[CallerRoute, ...] = (
            ("GET", "/fleet", self._fleet),
            ("GET", "/references", _references),
            ("GET", "/network", _network),
            ("GET", "/audit", _audit),
            ("POST", "/audit/verify", _verify),
            ("GET", "/doctor", self._doctor),
            ("POST", "/doctor", self._try),
        )
        return for_callers(self._callers, (*own, *jobs.ROUTES, *teams.ROUTES))

    async def watch(self) -> None:
        """Takes samples, until it is cancelled."""
        await self._figures.watch(self._callers.figures)

    async def _fleet(self, visit: Visit, caller: Caller) -> Response:
        sees_all = Scope.MACHINES in caller.scopes
        nodes: Sequence[NodeInfo] = ()
        if caller.platform is not None and sees_all:
            nodes = (await asyncio.to_thread(caller.platform.describe)).nodes
        samples = self._figures.samples if sees_all else ()
        return visit.page(
            "machines",
            title="Fleet",
            sees_all=sees_all,
            is_platform=caller.platform is not None,
            nodes=nodes[:NODES_SHOWN],
            more=max(len(nodes) - NODES_SHOWN, 0),
            charts=[chart(plan, samples) for plan in PLANS] if samples else (),
            since=samples[0].at if samples else 0.0,
            every=EVERY,
        )

    async def _doctor(self, visit: Visit, caller: Caller) -> Response:
        caller.require(Scope.MACHINES)
        if self._examining is None or self._examining.done():
            self._examining = asyncio.ensure_future(asyncio.to_thread(self._exams.report))
        done, _ = await asyncio.wait((self._examining,), timeout=PATIENCE)
        report = self._examining.result() if done else None
        return visit.page("doctor", title="Doctor", machine=machine(), report=report, tried=False)

    async def _try(self, visit: Visit, caller: Caller) -> Response:
        """Starts a jail as well: the parts may be there and still not work together."""
        await visit.form()
        caller.require(Scope.MACHINES)
        report = await asyncio.to_thread(self._exams.diagnosis)
        return visit.page("doctor", title="Doctor", machine=machine(), report=report, tried=True)


async def _references(visit: Visit, caller: Caller) -> Response:
    caller.require(Scope.REFERENCES)
    platform, after = caller.the_platform(), visit.request.query_params.get("after", "")
    found = await asyncio.to_thread(lambda: platform.references(after=after, limit=OF_A_PAGE))
    return visit.page(
        "references",
        title="References",
        references=found,
        following=found[-1].id if len(found) == OF_A_PAGE else "",
    )


async def _network(visit: Visit, caller: Caller) -> Response:
    return await _log(visit, caller, "network", "Requests to the network", kind="network")


async def _audit(visit: Visit, caller: Caller) -> Response:
    return await _log(visit, caller, "audit", "Audit log", kind=visit.request.query_params.get("kind", ""))


async def _verify(visit: Visit, caller: Caller) -> Response:
    await visit.form()
    caller.require(Scope.ADMIN)
    verification = await asyncio.to_thread(caller.the_platform().verify_audit)
    return await _log(visit, caller, "audit", "Audit log", verification=verification)


async def _log(
    visit: Visit,
    caller: Caller,
    template: str,
    title: str,
    *,
    kind: str = "",
    verification: AuditVerification | None = None,
) -> Response:
    caller.require(Scope.ADMIN)
    platform, asked = caller.the_platform(), visit.request.query_params
    refused, page = asked.get("refused") == "1", asked.get("page", "")
    found = await asyncio.to_thread(
        lambda: platform.audit(
            page=page, limit=OF_A_PAGE, kind=kind, refused=refused, runtime=asked.get("runtime", "")
        )
    )
    return visit.page(
        template,
        title=title,
        records=found.records,
        following=found.following,
        refused=refused,
        kind=kind,
        runtime=asked.get("runtime", ""),
        first=not page,
        verification=verification,
        written=_written,
    )


def _written(facts: Mapping[str, Any]) -> str:
    """The facts in one line."""
    text = " ".join(
        f"{name}={fact if isinstance(fact, str) else json.dumps(fact)}"
        for name, fact in sorted(facts.items())
        if fact not in ("", None)
    )
    return text if len(text) <= MOST_FACTS else f"{text[:MOST_FACTS]} ..."
