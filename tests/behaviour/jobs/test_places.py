"""Which works get a slot when not all can: fair turns over tenants, and slots are freed for waiting ones."""

from __future__ import annotations

import pytest
from tests.support.jobs.workshop import BARE, runners, someone
from tests.support.orchestrator.studio import Scripts, Studio
from tests.waiting import until

from cenote.gateway.jobs.tables import JobWorkload
from cenote.gateway.work.worker_slots import PROCESS, SlotLimits, WorkerSlots, share_of
from cenote_security.ids import TenantId

ACME, RIVAL = TenantId("acme"), TenantId("rival")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_tenants_share_and_who_is_next() -> None:
    """One past a tenant's share waits, even if other tenants have none; a new tenant is the next one."""
    places = WorkerSlots(SlotLimits(at_once=3, of_one_tenant=2))
    assert [["a"], ["b"], []] == [places.ask(work, ACME) for work in "abc"]
    assert ["x"] == places.ask("x", RIVAL)
    assert [] == places.ask("y", RIVAL)
    assert [] == places.ask("a", ACME)  # it has one
    assert ["y"] == places.leave("x")
    assert ["c"] == places.leave("a")
    assert [] == places.leave("nobody's")


def test_what_was_long_enough_is_asked_to_make_room() -> None:
    """Once its time is over, and only while another work waits; it may queue again, after those."""
    clock = Clock()
    places = WorkerSlots(SlotLimits(at_once=1, of_one_tenant=1), slice=60.0, clock=clock)
    places.ask("a", ACME)
    clock.now = 100.0
    assert None is places.overstaying
    places.ask("x", RIVAL)
    assert "a" == places.overstaying
    assert ["x"] == places.leave("a")
    assert [] == places.ask("a", ACME)
    clock.now = 159.9
    assert None is places.overstaying
    assert ["a"] == places.leave("x")
    assert [] == places.ask("a", ACME)  # it has it


GIB = 2**30


@pytest.mark.parametrize(
    ("memory", "at_once", "of_one_tenant"),
    [
        (GIB // 4, 1, 1),
        (GIB, 2, 2),
        (2 * GIB, 5, 2),
        (6 * GIB, 15, 3),
        (8 * GIB, 16, 4),
        (64 * GIB, 54, 13),
        (4096 * GIB, 512, 128),
    ],
)
def test_as_many_at_once_as_there_is_memory_for(memory: int, at_once: int, of_one_tenant: int) -> None:
    """Sixteen where they fit, fewer in a small pod, more on a large machine."""
    share = share_of(memory, tenants=4)
    assert (at_once, of_one_tenant) == (share.at_once, share.of_one_tenant)
    assert 2 * share.at_once * PROCESS <= max(memory, 2 * PROCESS)


def test_withdrawn_while_it_waits() -> None:
    """No slot goes to it."""
    places = WorkerSlots(SlotLimits(at_once=1, of_one_tenant=1))
    places.ask("a", ACME)
    places.ask("b", ACME)
    assert [] == places.leave("b")
    assert [] == places.leave("a")


@pytest.mark.slow
def test_a_long_job_makes_room_for_another_tenants(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one process for all, a job whose time is over stops after its current task, lets the other job run,
    and then continues: nothing of it is done twice.
    """
    monkeypatch.setattr(JobWorkload, "share", SlotLimits(at_once=1, of_one_tenant=1))
    monkeypatch.setattr("cenote.gateway.work.processes.LOOK_EVERY", 0.05)
    monkeypatch.setattr(
        WorkerSlots.__init__, "__kwdefaults__", {**WorkerSlots.__init__.__kwdefaults__, "slice": 0.0}
    )
    folder = tmp_path_factory.mktemp("places")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    with Scripts() as models:
        models.script(agent=["First.", "Second."])
        gate = models.hold("agent", 1)
        studio = Studio(folder / "state", models).open()
        try:
            tasks = [{"task": "Begin"}, {"code": "'b'"}, {"code": "'c'"}]
            long = studio.connect().jobs.submit(
                tasks, concurrency=1, model=studio.model("agent"), sandbox=BARE
            )
            until(lambda: models.calls["agent"] == 1)
            short = someone(studio, "rival").jobs.submit([{"code": "'short'"}], sandbox=BARE)
            assert "waiting" == short.status().state
            gate.set()
            assert "done" == short.wait().state
            assert "done" == long.wait().state
            assert [("First.", 1, 0), ("'b'", 1, 0), ("'c'", 1, 0)] == [
                (each.answer, each.attempts, each.lost) for each in long.results()
            ]
            assert 2 == long.status().starts
            until(lambda: not runners(studio))
        finally:
            studio.close()
