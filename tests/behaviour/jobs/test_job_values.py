"""Shared values of jobs that no process works on yet, or at the moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from tests.support.jobs.workshop import BARE
from tests.support.orchestrator.studio import Scripts, Studio
from tests.waiting import until

from cenote.gateway.api import server
from cenote.gateway.jobs.service import SharedJobValues
from cenote.gateway.work.processes import ProcessOrchestrators
from cenote.jobs import job_client
from cenote.runtime.remote.address import token_file
from cenote_proto.v1 import reference_pb2
from cenote_proto.v1.reference_pb2_grpc import ReferenceServiceStub


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Studio]:
    """A platform whose jobs wait for ever for a worker."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(ProcessOrchestrators, "ensure", lambda _self, _work: None)
    monkeypatch.setattr(server, "SharedJobValues", partial(SharedJobValues, every=0.05))
    models = Scripts()
    with models:
        studio = Studio(tmp_path / "state", models).open()
        yield studio
        studio.close()


@pytest.mark.slow
def test_values_are_kept_for_as_long_as_a_job_waits(idle: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their client has given them a lease of a minute; the platform renews each for an hour, again and again."""
    monkeypatch.setattr(job_client, "SECONDS_KEPT", 60.0)
    platform = idle.connect()
    with platform.runtime("source", sandbox=BARE) as runtime:
        runtime.execute("rows = [1, 2]")
        shared = runtime.share("rows")
        name = str(shared.holding.id)
        job = platform.jobs.submit([{"code": "rows"}], variables={"rows": shared}, sandbox=BARE)
    shared.release()
    with grpc.insecure_channel(idle.address) as channel:
        token = (("authorization", f"Bearer {token_file().read_text()}"),)

        def expires() -> float:
            question = reference_pb2.ReferenceId(id=name)
            return ReferenceServiceStub(channel).GetReference(question, metadata=token).expires

        until(lambda: expires() > time.time() + 3000)
        first = expires()
        until(lambda: expires() > first)
    assert "waiting" == job.status().state
