"""Zygotes from a client's view: many starts, deaths in the middle, forks of the client, and nothing left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import pytest
from tests.support.processes import runs
from tests.support.walls.jails import Jail, zygote, zygote_pid
from tests.waiting import PATIENCE, until

from cenote_security.errors import JailStartError, RuntimeClosedError, UnavailableError, UsageError
from cenote_security.policy import Isolation, SandboxPolicy
from cenote_worker.process.patient_wait import PatientWait
from cenote_worker.zygote import client as connection
from cenote_worker.zygote.client import READY_SECONDS, ZygoteClient
from cenote_worker.zygote.descriptors import JailDescriptors

POLICY = SandboxPolicy(preload=())


@pytest.fixture
def client() -> ZygoteClient:
    with zygote(preload=()) as client:
        yield client


def test_facts(client: ZygoteClient) -> None:
    """A zygote reports its level and its loaded modules; a module that is not installed is no error."""
    with zygote(preload=("json", "no_such_module")) as other:
        assert (("json",), ("no_such_module",)) == (other.facts.preloaded, other.facts.missing)
    assert client.isolation in ("strict", "landlock")


@pytest.mark.slow
def test_starts_from_many_threads(client: ZygoteClient) -> None:
    """A hundred at once: each gets a jail of its own."""
    with ThreadPoolExecutor(100) as pool:
        jails = list(pool.map(lambda _: Jail(client, POLICY), range(100)))
    try:
        assert 100 == len({jail.worker for jail in jails})
        assert [n * n for n in range(100)] == [jail.ask(f"result = {n} ** 2") for n, jail in enumerate(jails)]
    finally:
        for jail in jails:
            jail.close()


def test_a_dead_zygote_is_replaced(client: ZygoteClient) -> None:
    """Its jails live on; the next start makes a new one."""
    with Jail(client, POLICY) as jail:
        first = zygote_pid(client)
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        assert 42 == jail.ask("result = 42")
        with Jail(client, POLICY) as other:
            assert 42 == other.ask("result = 42")
        assert first != zygote_pid(client)


@pytest.mark.slow
def test_a_zygote_that_dies_during_starts(client: ZygoteClient) -> None:
    """Every start either succeeds or raises UnavailableError; none hangs; later starts succeed."""
    client.facts  # noqa: B018  (wait until it is ready)
    pid = zygote_pid(client)

    def start(_: int) -> str:
        try:
            Jail(client, POLICY).close()
        except UnavailableError:
            return "unavailable"
        return "started"

    with ThreadPoolExecutor(30) as pool:
        outcomes = pool.map(start, range(60))
        os.kill(pid, signal.SIGKILL)
        assert set(outcomes) <= {"started", "unavailable"}
    with Jail(client, POLICY) as jail:
        assert 42 == jail.ask("result = 42")


def test_closing_ends_all_jails(client: ZygoteClient) -> None:
    """Zygote and jails are gone when close returns; the client then refuses further starts."""
    with Jail(client, POLICY) as jail:
        client.close()
        assert jail.wait_for_end()
        with pytest.raises(RuntimeClosedError):
            Jail(client, POLICY)


@pytest.mark.slow
def test_a_fork_of_the_client_has_a_zygote_of_its_own(client: ZygoteClient) -> None:
    """It does not use its parent's socket, and does not end its parent's zygote."""
    with Jail(client, POLICY) as jail:
        parent = zygote_pid(client)
        child = os.fork()
        if child == 0:
            os._exit(_start_in_fork(client, parent))
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert parent == zygote_pid(client)
        assert 42 == jail.ask("result = 42")


def _start_in_fork(client: ZygoteClient, parent: int) -> int:
    try:
        with Jail(client, POLICY) as jail:
            fine = jail.ask("result = 42") == 42 and zygote_pid(client) != parent
        client.close()
    except BaseException:
        return 2
    return 0 if fine else 1


@pytest.mark.parametrize("isolation", ["strict", "landlock"])
def test_a_killed_client_leaves_nothing(isolation: str) -> None:
    """Even one with a fork that holds its sockets: zygote and jails end within a second or so of its SIGKILL."""
    script = (
        "import os, sys, time\n"
        "from cenote_security.policy import SandboxPolicy\n"
        "from tests.support.walls.jails import Jail, zygote, zygote_pid\n"
        f"client = zygote(preload=(), isolation={isolation!r})\n"
        f"jails = [Jail(client, SandboxPolicy(preload=(), isolation={isolation!r})) for _ in range(3)]\n"
        "pids = [pid for jail in jails for pid in (jail.warden, jail.worker)]\n"
        "if os.fork() == 0:\n"
        "    time.sleep(100)\n"
        "workdirs = [jail.ask('import os; result = os.getcwd()') for jail in jails]\n"
        "print(*workdirs)\n"
        "print(zygote_pid(client), *pids, flush=True)\n"
        "time.sleep(100)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        folders = [_outermost(Path(word)) for word in process.stdout.readline().split()]
        pids = [int(word) for word in process.stdout.readline().split()]
        assert 7 == len(pids)
        process.kill()
        process.wait()
        until(lambda: not any(map(runs, pids)))
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the fork
        process.stdout.close()
    assert (3, []) == (len(folders), [folder for folder in folders if folder.exists()])


def test_a_zygote_has_time_to_remove_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than its usual time to end: on a busy machine that is over before the removal begins."""
    monkeypatch.setattr("cenote_worker.zygote.client._END_SECONDS", 0.0)
    client = zygote(preload=(), isolation="landlock")
    with Jail(client, SandboxPolicy(preload=(), isolation="landlock")) as jail:
        folder = _outermost(Path(str(jail.ask("import os; result = os.getcwd()"))))
    assert folder.exists()
    client.close()
    assert not folder.exists()


def _outermost(workdir: Path) -> Path:
    """The folder that its zygote has made; at `strict` the working directory, which cannot be found outside."""
    return next((folder for folder in workdir.parents if folder.name.startswith("cenote-jails-")), workdir)


@pytest.mark.parametrize("isolation", ["strict", "landlock"])
def test_a_zygote_that_lingers(isolation: Isolation) -> None:
    """Its jails outlive its client; it ends with the last of them, and leaves nothing."""
    client = zygote(preload=(), isolation=isolation, lingers=True)
    pid = zygote_pid(client)
    policy = SandboxPolicy(preload=(), isolation=isolation)
    with Jail(client, policy) as jail:
        client.close()
        assert 42 == jail.ask("result = 42")
        folder = _outermost(Path(jail.ask("import os; result = os.getcwd()")))
        assert folder.exists() == (isolation == "landlock")
        assert runs(pid)
    until(lambda: not runs(pid))
    assert not folder.exists()


def test_a_start_while_the_machine_stands_still(
    client: ZygoteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client and jail stood still alike: a message that arrives when both continue is in time."""
    times = chain([0.0], repeat(10 * READY_SECONDS))
    monkeypatch.setattr(connection, "PatientWait", partial(PatientWait, clock=partial(next, times)))
    with Jail(client, POLICY) as jail:
        assert 42 == jail.ask("result = 42")


def test_a_failed_start_says_which_step(client: ZygoteClient) -> None:
    """A limit that the kernel refuses is an error with its errno, and the next start is unharmed."""
    policy = SandboxPolicy(preload=())
    object.__setattr__(policy, "disk", 2**63)  # more than a policy can ask for
    with pytest.raises(JailStartError) as caught:
        Jail(client, policy)
    assert caught.value.step in ("mount the working directory", "start the jail")
    assert "OverflowError" in str(caught.value) or caught.value.code
    with Jail(client, POLICY) as jail:
        assert 42 == jail.ask("result = 42")


def test_a_policy_must_fit(client: ZygoteClient) -> None:
    """Isolation, preload and mounts belong to a zygote; asking for others is an error of the caller."""
    nowhere = JailDescriptors(frames=0, control=0, stdout=0, stderr=0)
    assert not client.fits(SandboxPolicy(preload=("json",)))
    with pytest.raises(UsageError, match="preload"):
        client.start_jail(SandboxPolicy(preload=("json",)), nowhere)


@pytest.mark.slow
def test_a_preload_that_starts_threads_is_refused(tmp_path: Path) -> None:
    """A process with threads cannot be forked safely: the error names the module."""
    (tmp_path / "threaded_module.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    with (
        ZygoteClient(preload=("threaded_module",), folders=(str(tmp_path),)) as client,
        pytest.raises(UsageError, match="threaded_module starts a thread"),
    ):
        client.facts  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["strict", "landlock"])
def test_a_preload_may_write_to_its_cache_and_use_a_thread_for_a_moment(
    isolation: Isolation, tmp_path: Path
) -> None:
    """As `matplotlib.pyplot` does, which lists the fonts. A thread that has ended does not prevent a fork."""
    (tmp_path / "caching_module.py").write_text(
        "import os, pathlib, threading, time\n"
        "cache = pathlib.Path(os.environ['MPLCONFIGDIR'])\n"
        "cache.mkdir(parents=True, exist_ok=True)\n"
        "(cache / 'fonts').write_text('one')\n"
        "threading.Thread(target=time.sleep, args=(0.05,), daemon=True).start()"
    )
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    with ZygoteClient(isolation=isolation, preload=("caching_module",), folders=(str(tmp_path),)) as client:
        assert client.facts.preloaded == ("caching_module",)


def test_a_preload_that_raises_is_named(tmp_path: Path) -> None:
    """An error during an import reaches the caller."""
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('no licence')")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    with (
        ZygoteClient(preload=("broken_module",), folders=(str(tmp_path),)) as client,
        pytest.raises(UsageError, match="no licence"),
    ):
        client.facts  # noqa: B018


def test_a_client_with_threads_and_high_descriptors(client: ZygoteClient) -> None:
    """Neither threads of the client nor descriptor numbers above select's limit matter."""
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait, args=(PATIENCE,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    held = [os.dup(0) for _ in range(900)]
    try:
        with zygote(preload=()) as other, Jail(other, POLICY) as jail:
            assert 42 == jail.ask("result = 42")
    finally:
        stop.set()
        for descriptor in held:
            os.close(descriptor)
        for thread in threads:
            thread.join()


def test_no_wall_unless_asked_by_name() -> None:
    """`none` runs as the client's user on the client's files, in a process and a folder of its own."""
    with zygote(preload=(), isolation="none") as client:
        policy = SandboxPolicy(preload=(), isolation="none")
        with Jail(client, policy) as jail:
            assert ("none", os.geteuid()) == (
                jail.started.isolation,
                jail.ask("import os; result = os.getuid()"),
            )
            folder = Path(jail.ask("import os; result = os.getcwd()"))
            assert [] == list(folder.iterdir())
    assert not folder.exists()


def test_folders_of_an_ended_jail_are_removed() -> None:
    """At the levels without a private root they lie on the host; they are removed while the zygote lives on."""
    with zygote(preload=(), isolation="landlock") as client:
        policy = SandboxPolicy(preload=(), isolation="landlock")
        with Jail(client, policy) as jail:
            folder = Path(
                jail.ask("import os; os.makedirs('a/b'); open('a/b/c', 'w').close(); result = os.getcwd()")
            )
            jail.ask("import subprocess; subprocess.run('(setsid sleep 1000 &) &', shell=True)")
        until(lambda: not folder.parent.exists())
        assert folder.parents[1].exists()


LONELY_ROOT = """
echo 0 > /proc/sys/user/max_user_namespaces
exec "$0" -c '
from cenote_security.errors import IsolationUnavailableError
from cenote_worker.zygote.client import ZygoteClient
try:
    ZygoteClient(preload=()).facts
except IsolationUnavailableError as error:
    print(error)
'
"""


def test_root_of_a_namespace_with_no_other_user() -> None:
    """As in a rootless container with one user: no other user is available for jails, and the error says so."""
    inside = subprocess.run(
        ["unshare", "--user", "--map-root-user", "bash", "-c", LONELY_ROOT, sys.executable],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    if inside.returncode:
        pytest.skip(f"no user namespace to try it in: {inside.stderr}")
    assert "none of the user ids" in inside.stdout
