"""A runtime continues when its host process is killed at any instruction."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.adoption.fixtures import NUDGED, POLICY, Node, join, value
from tests.support.adoption.supervising import JAIL, NAME, TOKEN, SpareJails, gift, offer
from tests.support.descriptors import MEMORY, all_closed, opened
from tests.support.hosted.listening import Heard, NoHosts
from tests.waiting import PATIENCE, until

from cenote_security.errors import (
    RejectedError,
    RuntimeClosedError,
    UnavailableError,
    UnknownRuntimeError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.descriptor_store.client import DescriptorStoreClient, connect
from cenote_worker.descriptor_store.message import close_all
from cenote_worker.execution.results import ExecutionResult, Patched
from cenote_worker.runtime.handover.stored_log import StoredHandoverLog
from cenote_worker.runtime.injection_log import MAX_TIMES
from cenote_worker.runtime.keyed_requests import RequestKey
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.supervisor.channels.host_calls import HostCall, HostCallChannel
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.frame_parser import DoneReply
from cenote_worker.tenancy.audit_events import CellAuditEvent, EventBuffer
from cenote_worker.tenancy.machine_quotas import MachineQuotas
from cenote_worker.tenancy.usage import RuntimeUsage
from cenote_worker.transport.content import Content

COUNT = "import time\nfor i in range(60):\n    print(i)\n    time.sleep(0.01)\n'done'"
NUMB = """import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('begun', flush=True)
signal.sigwait([signal.SIGUSR1])"""
"""Waits for `Node.nudge`."""

COUNTED = "".join(f"{i}\n" for i in range(60))


def test_the_namespace_is_there(node: Node) -> None:
    """Killed between cells: variables, step numbers and outcomes of keyed cells are unchanged."""
    victim = node.victim()
    victim.execute("x = 41", "a")
    victim.execute("print('two')\nx + 1", "b")
    assert "42" == victim.value("b")
    victim.kill()
    runtime = node.adopt()
    assert "41" == value(runtime, "x")
    again = join(runtime, "b")
    assert ("42", 2, "two\n") == ((result := again.result()).value, result.step, result.stdout)
    assert "two\n" == again.printed


def test_a_history_that_was_lost_is_told(node: Node) -> None:
    """Killed with the record of two steps: only their place in the line is known."""
    victim = node.victim()
    victim.execute("x = 41", "a")
    victim.execute("x + 1", "b")
    assert "42" == victim.value("b")
    victim.kill()
    runtime = node.adopt()
    assert "41" == value(runtime, "x")
    line = runtime.history.tree.line(3)
    assert [(2, "unrecorded", False), (3, "cell", True)] == [
        (each.number, each.kind, each.trace is not None) for each in line
    ]


def test_the_running_cell_goes_on(node: Node) -> None:
    """Killed in the middle of a cell: the cell finishes, and its output arrives once and in order."""
    victim = node.victim()
    victim.execute(COUNT, "count")
    victim.heard("count", "20\n")
    victim.kill()
    runtime = node.adopt()
    whole = join(runtime, "count")
    before = victim.printed["count"]
    rest = join(runtime, "count", heard=len(before))
    result = whole.result()
    assert (COUNTED, "'done'") == (result.stdout, result.value)
    assert COUNTED == whole.printed
    assert COUNTED == before + rest.printed
    assert 1 == result.step


def told_deeds(trail: EventBuffer) -> list[tuple[str, str, str, str]]:
    """First line, token, error and state of each cell on record."""
    deeds = [deed for deed in trail.read().deeds if isinstance(deed, CellAuditEvent)]
    return [(deed.code.first_line, deed.token, deed.error, deed.state) for deed in deeds]


def books(trail: EventBuffer) -> RuntimeUsage:
    return RuntimeUsage("acme", NAME, POLICY, trail, MachineQuotas(), lambda _tenant: 0)


def test_the_cell_that_was_taken_over_is_on_record(node: Node) -> None:
    """The record names its author, also after a rollback. Finished cells are in the former process's record."""
    for on_error, code, came_to in (
        ("keep", NUMB + "\n1 / 0", "kept"),
        ("rollback", NUMB + "\n1 / 0", "rolled_back"),
        ("keep", NUMB + "\nos.kill(os.getpid(), 9)", "rolled_back"),
    ):
        trail = EventBuffer("heir")
        victim = node.victim()
        victim.execute("x = 1", "first")
        assert victim.value("first") is None
        victim.execute(code, "second", on_error=on_error)
        victim.heard("second", "begun")
        victim.kill()
        runtime = node.adopt(entries=books(trail).cell)
        assert [] == told_deeds(trail)
        heard = join(runtime, "second")
        node.nudge()
        error = heard.result().error
        assert error is not None
        assert [("import os, signal", TOKEN, error.type, came_to)] == told_deeds(trail)
        runtime.close()


def test_a_cell_whose_jail_vanished_is_on_record(node: Node) -> None:
    """It ran, and its outcome stays unknown."""
    trail = EventBuffer("heir")
    victim = node.victim()
    victim.execute(NUMB, "cell")
    victim.heard("cell", "begun")
    victim.kill()
    node.descriptor_store.drop(JAIL)
    runtime = node.adopt(entries=books(trail).cell)
    assert "lost" == join(runtime, "cell").result().state
    assert [("import os, signal", TOKEN, "RuntimeLost", "lost")] == told_deeds(trail)


def test_what_could_not_be_stored_is_told_by_the_successor(node: Node) -> None:
    """The result of a cell, and of a request without one: that it was done, and why it is not durable."""
    kept = StoredHandoverLog.fresh(NAME, POLICY, node.descriptor_store, SpareJails(node.descriptor_store))
    result = ExecutionResult(success=True, value="7", step=3)
    kept.settled("cell", NotDurableError(result, "No space left"))
    kept.settled("injection", NotDurableError(None, "No space left"))
    patched = Patched(status="applied", head=3)
    kept.settled("patch", NotDurableError(patched, "No space left"))
    kept.leave()
    runtime = node.adopt()
    for key, given in (("cell", result), ("injection", None), ("patch", patched)):
        listener = Heard()
        runtime.outcome(key, listener)
        outcome = listener.outcome()
        assert isinstance(outcome, NotDurableError), outcome
        assert ("No space left", given) == (outcome.reason, outcome.outcome)


def test_what_was_deleted_stays_deleted(node: Node) -> None:
    """A jail of the successor does not begin with it."""
    victim = node.victim(snapshots=False)
    for name in ("gone", "there"):
        victim.tell("inject", name, name=name, value=1, size=10)
        assert "DoneReply" == victim.value(name)
    victim.tell("delete", "delete", name="gone")
    assert "DoneReply" == victim.value("delete")
    victim.kill()
    node.spare()
    runtime = node.adopt()
    runtime.reset()
    assert "['there']" == value(runtime, "[name for name in ('gone', 'there') if name in globals()]")


def test_a_cell_that_has_its_answer_is_not_run_again(node: Node) -> None:
    """A key keeps its meaning in the successor: the outcome is the first one for every client."""
    victim = node.victim()
    victim.execute("count = 0", "a")
    victim.execute("count += 1\ncount", "b")
    assert "1" == victim.value("b")
    victim.kill()
    runtime = node.adopt()
    assert "1" == join(runtime, "b").result().value
    assert "1" == value(runtime, "count")


@pytest.mark.slow
def test_the_time_of_a_cell_goes_on(node: Node) -> None:
    """The deadline counts from the start of the cell, not from the take-over."""
    victim = node.victim()
    for seconds in (1.5, 15.0):  # on a busy machine it may end before it has printed anything
        slow = f"slow for {seconds}"
        victim.execute("import time\nprint('begun')\ntime.sleep(60)", slow, timeout=seconds)
        told = victim.wait_for(lambda report, slow=slow: report["key"] == slow)
        if "output" in told:
            break
    victim.kill()
    runtime = node.adopt()
    result = join(runtime, slow).result()
    assert result.error is not None
    assert "time" == result.error.reason
    assert seconds - 0.1 < result.usage.wall < 50
    assert "2" == value(runtime, "1 + 1")


def test_a_cell_that_ignores_its_interrupt_is_ended(hasty: None, node: Node) -> None:
    """The grace period of an interrupted cell continues in the successor."""
    victim = node.victim()
    stubborn = """
import time
while True:
    try:
        print('begun')
        while True: time.sleep(1)
    except KeyboardInterrupt:
        print('no')
"""
    victim.execute(stubborn, "stubborn")
    victim.heard("stubborn", "begun")
    victim.tell("interrupt", "any")
    victim.heard("stubborn", "no")
    victim.kill()
    node.spare()
    runtime = node.adopt()
    result = join(runtime, "stubborn").result()
    assert ("rolled_back", "interrupt") == (result.state, result.error and result.error.reason)
    assert "2" == value(runtime, "1 + 1")


@pytest.mark.usefixtures("patient")
def test_a_taken_over_cell_can_be_interrupted(node: Node) -> None:
    """An interrupt of the successor reaches the cell of its predecessor, and only that."""
    victim = node.victim()
    victim.execute("x = 1\nprint('begun')\nimport time\ntime.sleep(600)", "slow")
    victim.heard("slow", "begun")
    victim.kill()
    runtime = node.adopt()
    listener = join(runtime, "slow")
    assert runtime.interrupt()
    result = listener.result()
    assert result.error is not None
    assert ("interrupt", "kept") == (result.error.reason, result.state)
    assert "1" == value(runtime, "x")


def test_a_jail_that_died_alone_is_reported(node: Node) -> None:
    """No process supervised it: its cell is lost, with its output, and the next call starts a fresh jail."""
    victim = node.victim(snapshots=False)
    victim.tell("inject", "gift", name="gift", value=7, size=100_000)
    victim.execute(f"{NUDGED}print('begun', flush=True)\nsignal.pause()", "end")
    victim.heard("end", "begun")
    victim.kill()
    node.nudge()
    wait_for_end(node)
    node.spare()
    runtime = node.adopt()
    listener = join(runtime, "end")
    result = listener.result()
    assert ("lost", "begun\n", "exit") == (result.state, result.stdout, result.error and result.error.reason)
    assert "7" == value(runtime, "gift[0]")


def test_a_worker_that_died_alone_is_followed_by_its_snapshot(node: Node) -> None:
    """The warden continues without a supervisor: the successor gets the fate of the cell, and has the state."""
    victim = node.victim()
    victim.execute("x = 1", "first")
    victim.value("first")
    victim.execute(f"{NUDGED}x = 2\nprint('begun', flush=True)\nsignal.pause()", "end")
    victim.heard("end", "begun")
    victim.kill()
    former = node.worker()
    node.nudge()
    until(lambda: node.worker() != former)
    runtime = node.adopt()
    result = join(runtime, "end").result()
    assert ("rolled_back", "begun\n", 1) == (result.state, result.stdout, result.back_at)
    assert result.error is not None
    assert ("exit", True) == (result.error.reason, "as it was before the cell" in result.error.message)
    assert "1" == value(runtime, "x")


def test_what_became_of_a_worker_is_written_down(node: Node) -> None:
    """Its supervisor was notified of the death, and was killed before it reported it."""
    victim = node.victim()
    victim.execute("x = 1", "first")
    victim.value("first")
    victim.execute("import os\nx = 2\nos._exit(3)", "end")
    victim.value("end")
    victim.kill()
    runtime = node.adopt()
    assert "rolled_back" == join(runtime, "end").result().state
    result = runtime_crash(runtime)
    assert ("rolled_back", 1) == (result.state, result.back_at)
    assert "as it was before the cell" in str(result.error)


def runtime_crash(runtime: HostedRuntime) -> ExecutionResult:
    listener = Heard()
    runtime.execute("import os; os.abort()", None, listener)
    return listener.result()


def wait_for_end(node: Node) -> None:
    """Waits until the first process of the jail has ended."""
    kept = node.descriptor_store.get(JAIL)
    assert kept is not None
    poll = select.poll()
    poll.register(kept.descriptors[0], select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    close_all(kept.descriptors)


def test_a_jail_that_died_between_two_cells_is_reported_once(node: Node) -> None:
    """The next call reports it, the one after that has a fresh jail."""
    victim = node.victim(snapshots=False)
    victim.execute("1", "end")
    victim.value("end")
    victim.kill()
    node.end_worker()
    wait_for_end(node)
    node.spare()
    runtime = node.adopt()
    lost = join(runtime, "next").result()
    assert ("lost", "killed") == (lost.state, lost.error and lost.error.reason)
    assert "2" == value(runtime, "1 + 1")


def test_injections_are_there_for_later_jails(node: Node) -> None:
    """Values injected before the take-over are in the jail, and in the next one; the last value of a name counts.

    And the quota stays as declared.
    """
    victim = node.victim()
    for number in (1, 2):
        victim.tell("inject", f"gift {number}", name="gift", value=number, size=100_000)
        victim.value(f"gift {number}")
    victim.tell("inject", "small", name="small", value=3, size=1)
    victim.value("small")
    victim.kill()
    assert 2 == len(node.descriptor_store.keys("runtime/adopted/injection/"))
    node.spare()
    runtime = node.adopt()
    assert "(2, 3)" == value(runtime, "gift[0], small[0]")
    runtime.reset()
    assert "(2, 3)" == value(runtime, "gift[0], small[0]")
    listener = Heard()
    runtime.inject(gift("gift", [4]), listener, replace=True, key=RequestKey(text="gift 2"))
    assert DoneReply() == listener.outcome()
    assert "2" == value(runtime, "gift[0]")
    claim = Content(size=MAX_TIMES * POLICY.memory_bytes, count=0, inline=b"")
    with pytest.raises(RejectedError):
        runtime.inject(replace(gift("more", 1), values=claim), Heard(), replace=True)


@pytest.mark.slow
def test_a_second_successor_goes_on_like_the_first(node: Node) -> None:
    """Also when the first one ends in the middle of the same cell."""
    victim = node.victim()
    victim.execute(COUNT, "count")
    victim.heard("count", "10\n")
    victim.kill()
    second = node.adopting()
    second.execute("", "count")
    second.heard("count", "30\n")
    second.kill()
    runtime = node.adopt()
    whole = join(runtime, "count")
    assert COUNTED == whole.result().stdout
    assert COUNTED == whole.printed


@pytest.mark.slow
def test_large_displays_and_results_are_not_lost(node: Node) -> None:
    """Content that travels in separate memory beside a packet reaches the successor too."""
    victim = node.victim()
    show = "import time\nclass Big:\n    def _repr_html_(self): return 'x' * 60_000\ndisplay(Big())\nprint('shown')\n"
    victim.execute(show + "time.sleep(1)\nprint('y' * 150_000)\n'z' * 100", "show")
    victim.heard("show", "shown")
    victim.kill()
    runtime = node.adopt()
    result = join(runtime, "show").result()
    assert ["x" * 60_000] == [bundle.get("text/html") for bundle in result.outputs if "text/html" in bundle]
    assert 6 + 150_001 == len(result.stdout)


def test_host_calls_under_way_get_a_clear_error(node: Node) -> None:
    """Their outcome is unknown: the cell may handle that. Later ones reach the successor."""
    victim = node.victim()
    victim.tell("offer", "offer", name="ask")
    victim.value("offer")
    call = "try:\n    ask()\nexcept RuntimeError as error:\n    print(error)\n"
    victim.execute(call, "call")
    victim.wait_for(lambda report: "called" in report)
    victim.kill()
    runtime = node.adopt(Answering())
    assert "may have been carried out" in join(runtime, "call").result().stdout
    assert "'answered'" == value(runtime, "ask()")


def test_host_calls_behind_a_return_to_before_the_first_function(node: Node) -> None:
    """The process that continues lacks the line of their calls; the successor has its far end, to pass on again."""
    victim = node.victim()
    victim.execute("x = 1", "first")
    victim.value("first")
    victim.tell("snapshot", "kept", label="here")  # else a state is stored where nothing follows at once
    victim.value("kept")
    victim.tell("offer", "offer", name="ask")
    victim.value("offer")
    victim.kill()
    runtime = node.adopt(Answering())
    for told in (partial(runtime.rollback, 1), partial(runtime.inject, offer("ask"), replace=True)):
        listener = Heard()
        told(listener=listener)
        assert not isinstance(listener.outcome(), Exception)
    assert "('answered', 1)" == value(runtime, "ask(), x")


class Answering(NoHosts):
    def call(self, line: HostCallChannel, call: HostCall) -> None:
        call.close()
        line.answer(call.id, Content.pack([pickle.dumps("answered")]))


@pytest.mark.slow
def test_a_store_that_was_killed_is_filled_again(node: Node) -> None:
    """Running jails continue; the next store holds everything that a successor needs."""
    victim = node.victim()
    victim.tell("inject", "gift", name="gift", value=5, size=100_000)
    victim.value("gift")
    victim.execute(COUNT, "count")
    victim.heard("count", "10\n")
    os.kill(store_pid(node), signal.SIGKILL)
    victim.heard("count", "40\n")
    until(lambda: "runtime/adopted/journal" in keys(node))
    victim.kill()
    node.spare()
    runtime = node.adopt()
    assert COUNTED == join(runtime, "count").result().stdout
    assert "5" == value(runtime, "gift[0]")
    runtime.reset()
    assert "5" == value(runtime, "gift[0]")


def store_pid(node: Node) -> int:
    with connect(node.folder) as line:
        return int(struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def keys(node: Node) -> list[str]:
    with suppress(UnavailableError):
        return node.descriptor_store.keys()
    return []


def test_nothing_is_left_when_it_is_closed(node: Node) -> None:
    """Closing an adopted runtime removes its jail, its control group and its entries."""
    victim = node.victim()
    victim.tell("inject", "gift", name="gift", value=5, size=100_000)
    victim.execute("import os\nos.getpid()", "pid")
    victim.value("pid")
    victim.kill()
    node.descriptor_store.drop_soon("nothing")  # one-way messages use a separate line, which stays
    before = len(opened())
    runtime = node.adopt()
    value(runtime, "1")
    groups = group_folders(runtime)
    assert all(folder.exists() for folder in groups)
    runtime.close()
    until(lambda: [] == node.descriptor_store.keys())
    until(lambda: len(opened()) <= before)
    until(lambda: not any(folder.exists() for folder in groups))


def test_a_closed_runtime_takes_nothing_of_a_later_one_of_its_name(node: Node) -> None:
    """The end of its jail is reported after it was closed, when another runtime may have its name and its keys."""
    former = StoredHandoverLog.fresh(NAME, POLICY, node.descriptor_store, SpareJails(node.descriptor_store))
    node.spare()
    jail = former.start_jail(POLICY, None, None)
    former.hold(injection := gift("gift", 5))
    former.close()
    later = node.victim()
    later.tell("inject", "other", name="other", value=1, size=10)
    assert "DoneReply" == later.value("other")
    kept = node.descriptor_store.keys()
    jail.end(JailExit(reason="closed"))
    until(lambda: jail.death)
    heard = threading.Event()
    jail._reactor.call_soon(heard.set)  # where its end is reported
    assert heard.wait(PATIENCE)
    former.release(injection)
    former.refill()
    assert kept == node.descriptor_store.keys()
    later.kill()
    assert "2" == value(node.adopt(), "len(other)")


def group_folders(runtime: HostedRuntime) -> list[Path]:
    assert runtime.supervisor is not None
    group = runtime.supervisor._ends.group
    return [] if group is None else list(group.folders.values())


def test_without_store_and_supervisor_the_jail_ends(node: Node) -> None:
    """No process is left that could need it."""
    victim = node.victim()
    victim.execute("1", "one")
    victim.value("one")
    kept = node.descriptor_store.get(JAIL)
    assert kept is not None
    close_all(kept.descriptors[1:])
    victim.kill()
    node.descriptor_store.shut_down()
    poll = select.poll()
    poll.register(kept.descriptors[0], select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    close_all(kept.descriptors[:1])


def test_what_nobody_keeps_cannot_be_adopted(node: Node) -> None:
    """The error names the runtime."""
    with pytest.raises(UnknownRuntimeError, match="adopted"):
        node.adopt()


def test_a_process_that_lives_keeps_its_runtime(node: Node) -> None:
    """Two hosts of one runtime would each answer for half of it."""
    victim = node.victim()
    victim.execute("1", "one")
    victim.value("one")
    with pytest.raises(UnavailableError, match="has not ended"):
        node.adopt()
    victim.execute("2", "two")
    assert "2" == victim.value("two")


def test_a_jail_in_gvisor_is_refused(node: Node) -> None:
    """It could not be taken over: the error comes before it starts, not when it is lost."""
    with pytest.raises(UnavailableError, match="gVisor"):
        StoredHandoverLog.fresh("other", SandboxPolicy(isolation="gvisor"), node.descriptor_store)
    assert [] == node.descriptor_store.keys()


def test_where_nothing_can_be_kept_nothing_is_left(tmp_path: Path) -> None:
    """Not even the journal's memory, in a process that serves runtimes for months."""
    with all_closed(MEMORY), pytest.raises(UnavailableError):
        StoredHandoverLog.fresh("other", POLICY, DescriptorStoreClient(tmp_path))


def test_an_idle_runtime_is_handed_over(node: Node) -> None:
    """The process lives on without it, with none of its descriptors; the next one adopts it."""
    victim = node.victim()
    victim.tell("offer", "offer", name="ask")
    victim.value("offer")
    victim.execute("x = 41", "x")
    victim.value("x")
    victim.kill()
    before = len(opened())
    first = node.adopt(Answering())
    assert "42" == value(first, "x + 1")
    groups = group_folders(first)
    assert first.hand_over()
    until(lambda: len(opened()) <= before)
    assert all(folder.exists() for folder in groups)
    with pytest.raises(RuntimeClosedError):
        first.start()
    second = node.adopt(Answering())
    assert "(41, 'answered')" == value(second, "x, ask()")


def test_a_runtime_that_works_is_not_handed_over(node: Node) -> None:
    """Nothing changes: its cell continues."""
    victim = node.victim()
    waiting = (
        "told = []\nsignal.signal(signal.SIGUSR1, lambda *_: told.append(1))\nprint('begun', flush=True)\n"
    )
    victim.execute(f"import signal, time\n{waiting}while not told: time.sleep(0.01)\n'done'", "wait")
    victim.heard("wait", "begun")
    victim.kill()
    runtime = node.adopt()
    assert not runtime.hand_over()
    node.nudge()
    assert "'done'" == join(runtime, "wait").result().value


def test_what_is_not_kept_cannot_be_handed_over() -> None:
    """The jail of an ordinary runtime has no other owner."""
    with pytest.raises(UsageError, match="kept"):
        HostedRuntime(SandboxPolicy(), NoHosts()).hand_over()


def test_an_end_that_nobody_was_told_of_is_told_by_the_successor(node: Node) -> None:
    """The jail died between two cells, and then its process: the reason is the jail's."""
    victim = node.victim(snapshots=False)
    victim.execute("1", "end")
    victim.value("end")
    node.end_worker()
    until(lambda: JAIL not in keys(node))
    victim.kill()
    node.spare()
    runtime = node.adopt()
    lost = join(runtime, "next").result()
    assert ("lost", "killed") == (lost.state, lost.error and lost.error.reason)
    assert "2" == value(runtime, "1 + 1")


def test_an_end_that_somebody_was_told_of_is_not_told_again(node: Node) -> None:
    """The result of the cell that ended its jail was the report."""
    victim = node.victim(snapshots=False)
    victim.execute("import os; os._exit(3)", "end")
    victim.value("end")
    until(lambda: JAIL not in keys(node))
    victim.kill()
    node.spare()
    runtime = node.adopt()
    assert "2" == value(runtime, "1 + 1")
    assert "lost" == join(runtime, "end").result().state
