"""The warden: it answers while the worker is busy, reports how it ended, and ends all its processes."""

from __future__ import annotations

import os
import secrets
import signal
import time
from pathlib import Path

import pytest
from tests.support.processes import everyone, runs, state_of, status_of, tree_of
from tests.support.walls.fixtures import StartJail
from tests.support.walls.jails import InJailError, Jail
from tests.waiting import PATIENCE, until

from cenote_security.walls.limits import oom_score
from cenote_worker.zygote.processes import oom_kills

HOLD_THE_INTERPRETER = "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')"


@pytest.fixture
def killed_before() -> int:
    """The number of OOM kills on this machine before the test's jail exists."""
    return oom_kills("/proc")


def test_status_while_the_interpreter_is_held(jail: Jail) -> None:
    """A regular expression that runs for ever holds the worker's lock; the warden is another process."""
    jail.tell(HOLD_THE_INTERPRETER)
    started = time.perf_counter()
    status = jail.say(op="status", id=7)
    assert time.perf_counter() - started < PATIENCE
    assert ("status", 7, 1) == (status["op"], status["id"], status["processes"])
    assert 2**20 < status["memory"] < 2**30


def test_status_counts_all_processes(jail: Jail) -> None:
    """Children and orphans too, also after a double fork and in a new session."""
    jail.ask("import subprocess; a = subprocess.Popen(['sleep', '100'])")
    jail.ask("import subprocess; subprocess.run('(setsid sleep 100 &) &', shell=True)")
    until(lambda: 3 == jail.say(op="status", id=1)["processes"])


def test_interrupt(jail: Jail) -> None:
    """SIGINT reaches the worker as KeyboardInterrupt; the warden says that it was sent."""
    jail.tell("import time; time.sleep(100)")
    until(lambda: state_of(jail.worker) == "S")
    assert {"op": "interrupted", "id": 3} == jail.say(op="interrupt", id=3)
    with pytest.raises(InJailError, match="KeyboardInterrupt"):
        jail.hear()
    assert 42 == jail.ask("result = 42")


@pytest.mark.parametrize(
    ("source", "by_signal", "status"),
    [
        ("import os; os._exit(3)", None, 3),
        ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV, None),
        ("import os; os.kill(os.getpid(), 9)", signal.SIGKILL, None),
        ("import os; os.abort()", signal.SIGABRT, None),
    ],
    ids=["exit", "segfault", "kill", "abort"],
)
def test_how_the_worker_ended(
    killed_before: int, jail: Jail, source: str, by_signal: int | None, status: int | None
) -> None:
    """Signal or status, and its peak memory; then the warden ends too. The kernel counts OOM kills for the whole
    machine, on which other tests run as well.
    """
    jail.tell(source)
    news = jail.news()
    assert ("exited", by_signal, status) == (news["op"], news["signal"], news["status"])
    assert not news["oom"] or oom_kills("/proc") > killed_before
    assert news["max_rss"] > 2**20
    assert jail.wait_for_end()


def test_kill_worker(jail: Jail) -> None:
    """The client need not know its pid."""
    jail.tell(HOLD_THE_INTERPRETER)
    assert signal.SIGKILL == jail.say(op="kill_worker", id=1)["signal"]
    assert jail.wait_for_end()


def test_orphans_end_with_the_jail(jail: Jail) -> None:
    """A daemon that left its session and its parent does not outlive the worker."""
    jail.ask("import subprocess; subprocess.run('(setsid sleep 1000 >/dev/null 2>&1 &) &', shell=True)")
    until(lambda: 2 == jail.say(op="status", id=1)["processes"])
    _, *inside = tree_of(jail.warden)
    jail.tell("import os; os._exit(0)")
    assert jail.wait_for_end()
    until(lambda: not any(map(runs, inside)))


def test_the_jail_ends_when_the_client_hangs_up(jail: Jail) -> None:
    """The warden ends when its control socket is closed."""
    inside = tree_of(jail.warden)
    jail.control.close()
    assert jail.wait_for_end()
    until(lambda: not any(map(runs, inside)))


def test_a_killed_warden_takes_its_jail_along(jail: Jail) -> None:
    """Whatever kills it, no process of the jail is left."""
    jail.ask("import subprocess; a = subprocess.Popen(['sleep', '1000'])")
    _, *inside = tree_of(jail.warden)
    assert 2 == len(inside)
    os.kill(jail.warden, signal.SIGKILL)
    assert jail.wait_for_end()
    until(lambda: not any(map(runs, inside)))


def test_zombies_are_reaped(start_jail: StartJail) -> None:
    """The warden adopts and collects orphans: their slots in the process limit are free again."""
    jail = start_jail("strict", processes=16)
    for _ in range(20):
        until(lambda: jail.say(op="status", id=1)["processes"] == 1)
        jail.ask("import subprocess; subprocess.run('(true &) &', shell=True, check=True)")
    until(lambda: jail.say(op="status", id=1)["processes"] == 1)


COMETS = """
import ctypes, os
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(15, {name!r}.encode())
        while True:
            if os.fork():
                os._exit(0)
"""


@pytest.mark.sweep
@pytest.mark.parametrize("end", ["hang-up", "exit", "killed warden"])
def test_what_forks_for_ever_ends_with_the_jail(level: str, start_jail: StartJail, end: str) -> None:
    """Processes that fork constantly: each has ended, and its child exists, before a list of them is read."""
    jail = start_jail(level, processes=64)
    name = f"comet-{secrets.token_hex(4)}"
    jail.ask(COMETS.format(name=name))
    until(lambda: bool(_named(name)))
    match end:
        case "hang-up":
            jail.control.close()
        case "exit":
            jail.tell("import os; os._exit(0)")
        case "killed warden":
            os.kill(jail.warden, signal.SIGKILL)
    assert jail.wait_for_end()
    until(lambda: not any(_named(name) for _ in range(20)))  # one look may miss a running process


def _named(name: str) -> list[int]:
    """Processes of this name."""
    return [pid for pid in everyone() if status_of(pid).get("Name") == name]


def test_first_to_go_when_memory_is_short(level: str, start_jail: StartJail) -> None:
    """Of client and jail, the kernel kills the jail: its processes have the higher score."""
    jail = start_jail(level)
    own = int(Path("/proc/self/oom_score_adj").read_text())
    for pid in (jail.warden, jail.worker):
        assert oom_score(own) == int(Path(f"/proc/{pid}/oom_score_adj").read_text()) > own


@pytest.mark.parametrize(("client", "jail"), [(-1000, 500), (0, 500), (300, 800), (500, 1000), (1000, 1000)])
def test_a_score_above_the_client_s(client: int, jail: int) -> None:
    """The client may have the highest score already (in a cluster), which only privileged processes may lower."""
    assert jail == oom_score(client)
