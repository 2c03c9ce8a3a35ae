"""A program: a small cluster, and a platform that runs teams and jobs on one actor of each kind at a time."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import ray
from tests.support.jobs.workshop import BARE, someone
from tests.support.orchestrator.studio import Scripts, Studio, code
from tests.support.small_ray import start_ray
from tests.waiting import until

from cenote.gateway.errors import DatabaseUnavailableError
from cenote.gateway.jobs.tables import JobWorkload
from cenote.gateway.machines.nodes import Nodes
from cenote.gateway.process import platform
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.work import ray_actors
from cenote.gateway.work.ray_actors import RayOrchestrators
from cenote.gateway.work.settings import OrchestratorSettings
from cenote.gateway.work.worker_slots import SlotLimits, WorkerSlots
from cenote.gateway.work.workload import Workload
from cenote_security.errors import CenoteError
from cenote_security.ids import TenantId

ONE = SlotLimits(at_once=1, of_one_tenant=1)


def orchestrators(options: PlatformOptions, works: Workload, _nodes: Nodes) -> RayOrchestrators:
    settings = OrchestratorSettings(state=options.state, kind=works.kind)
    return RayOrchestrators(settings, works, places=WorkerSlots(ONE, slice=0.0))


def at_work(kind: str) -> list[str]:
    return [name for name in ray.util.list_named_actors() if name.startswith(f"{kind}/")]


def jobs(studio: Studio) -> dict[str, object]:
    """One with three tasks, of which the first is blocked, and another tenant's that is submitted meanwhile."""
    studio.models.script(agent=["First."])
    gate = studio.models.hold("agent", 1)
    tasks = [{"task": "Begin"}, {"code": "'b'"}, {"code": "'c'"}]
    long = studio.connect().jobs.submit(tasks, concurrency=1, model=studio.model("agent"), sandbox=BARE)
    until(lambda: studio.models.calls["agent"] == 1)
    short = someone(studio, "rival").jobs.submit([{"code": "'short'"}], sandbox=BARE)
    waits, actors = short.status().state, len(at_work("job"))
    gate.set()
    ends = [short.wait().state, long.wait().state]
    until(lambda: not at_work("job"))
    return {
        "waits": waits,
        "actors": actors,
        "ends": ends,
        "results": [(each.answer, each.attempts, each.lost) for each in long.results()],
        "made_room": long.status().starts > 1,
    }


def teams(studio: Studio) -> dict[str, object]:
    """Three teams; each would finish at once except the first, which is blocked."""
    studio.models.script(member=[code("reply('done')")])
    gate = studio.models.hold("member", 1)
    made = [studio.team(f"team{number}", sandbox=BARE) for number in range(3)]
    numbers = []
    for team in made:
        team.add("one", model=studio.model("member"))
        numbers.append(asyncio.run(team.start("Go on.")))
    until(lambda: studio.models.calls["member"] == 1)
    states, actors = [team.status().runs[0].state for team in made], len(at_work("team"))
    gate.set()
    pairs = zip(made, numbers, strict=True)
    answers = [asyncio.run(team.wait(number)).answer for team, number in pairs]
    until(lambda: not at_work("team"))
    return {"states": sorted(states), "actors": actors, "answers": answers}


def unasked(studio: Studio) -> str:
    """What happens to a job if the database fails, after its creation, on the query for its tenant."""
    tenant, asked = JobWorkload.tenant, []

    def away(works: JobWorkload, work: str) -> TenantId:
        asked.append(work)
        if len(asked) == 1:
            raise DatabaseUnavailableError("the database", "it is away")
        return tenant(works, work)

    with patch.object(JobWorkload, "tenant", away), suppress(CenoteError):
        studio.connect().jobs.submit([{"code": "'c'"}], sandbox=BARE)
    return studio.connect().jobs.get(asked[0]).wait().state


def main(folder: Path) -> None:
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    start_ray(folder / "ray", namespace="places")
    platform._orchestrators = orchestrators  # type: ignore[assignment]
    ray_actors.SWEEP_EVERY = 0.1  # type: ignore[misc]
    models = Scripts()
    with models:
        studio = Studio(folder / "state", models).open()
        told = {"jobs": jobs(studio), "teams": teams(studio), "unasked": unasked(studio)}
        studio.close()
    ray.shutdown()
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
