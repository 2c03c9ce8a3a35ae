"""The processes of a platform's own cluster."""

from __future__ import annotations

from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import title
from tests.waiting import until


def test_no_server_runs_that_nobody_asks(platform: StandingPlatform) -> None:
    """Ray's dashboard, and its server for remote drivers, would each be a process of 100 MB and a port."""
    until(lambda: platform.processes("ray::RuntimeActor"))  # the last one to start
    titles = [title(pid) for pid in platform.processes()]
    assert 1 == len([line for line in titles if "/gcs/gcs_server " in line])
    assert [] == [
        line for line in titles if "ray.util.client.server" in line or "/dashboard/dashboard.py" in line
    ]
