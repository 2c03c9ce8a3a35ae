"""Groups are made with their limits, entered by jails only, and never left behind."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.support.limits.fixtures import StartRuntime, group_of
from tests.waiting import until

from cenote.runtime import PythonRuntime
from cenote_security.errors import UnavailableError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.walls.cgroups import CgroupShare, CgroupSite, ClientGroups, JailGroup, sweep
from cenote_worker.supervisor.account.accounting import Accounting
from cenote_worker.supervisor.reactor import Reactor
from cenote_worker.zygote.client import ZygoteFacts

SHARE = CgroupShare(memory=64 * 2**20, tasks=9, cpus=0.5)


@pytest.mark.slow
def test_a_cpu_quota(start_runtime: StartRuntime, site: CgroupSite) -> None:
    """A jail that uses more than its share is throttled; the kernel's count shows it. The share is small, so that a
    loaded machine can provide it, too."""
    if "cpu" not in site.folders:
        pytest.skip("no controller for CPU time here")
    runtime = start_runtime(limits="cgroup", cpus=0.1)
    runtime.core.start()
    before = throttled(group_of(runtime))

    def waited() -> bool:
        """A machine with almost no time for it spends it in the kernel; then it uses more."""
        runtime.execute("import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass")
        return throttled(group_of(runtime)) > before

    until(waited)


def throttled(group: JailGroup) -> int:
    """Number of periods in which it was throttled."""
    lines = (group.folders["cpu"] / "cpu.stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("nr_throttled"))


def test_groups_that_nobody_supervised_to_the_end(site: CgroupSite) -> None:
    """One without processes is removed by the second sweep, one with some stays."""
    groups = ClientGroups(site)
    with ExitStack() as arrival:
        lived_in, empty = groups.make(SHARE, arrival), groups.make(SHARE, arrival)
    with ExitStack() as opened, subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
        for entrance in lived_in.entrances(opened):
            os.write(entrance, str(sleeper.pid).encode())
        groups.sweep()
        assert [True, True] == [folder.exists() for folder in (folder_of(lived_in), folder_of(empty))]
        groups.sweep()
        assert [True, False] == [folder.exists() for folder in (folder_of(lived_in), folder_of(empty))]
        sleeper.kill()
    for group in (lived_in, empty):
        group.close()
        until(group.remove)
    groups.remove()


def test_a_jail_on_its_way_keeps_its_group(site: CgroupSite) -> None:
    """For as long as the start takes: when a hundred start at once, many sweeps happen before the last is there."""
    groups = ClientGroups(site)
    with ExitStack() as arrival:
        group = groups.make(SHARE, arrival)
        for _ in range(3):
            groups.sweep()
        assert folder_of(group).exists()
    groups.sweep()
    assert folder_of(group).exists()
    groups.sweep()
    assert not folder_of(group).exists()
    group.close()
    groups.remove()


def folder_of(group: JailGroup) -> Path:
    return next(iter(group.folders.values()))


def test_a_jail_sees_nothing_of_it(start_runtime: StartRuntime, site: CgroupSite) -> None:
    """The group is the root of the jail's view, and no descriptor of it remains, including in the supervisor."""
    runtime = start_runtime(limits="cgroup")
    paths = runtime.execute(
        "print({line.split(':')[2].strip() for line in open('/proc/self/cgroup')})"
    ).stdout
    assert "cenote" not in paths
    held = []
    worker = runtime.core.backend.supervisor._account._worker  # type: ignore[union-attr]
    for pid in (worker.warden, worker.pid):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed already: the supervisor inspects its processes
                held.append(os.readlink(link))
    assert held
    assert [] == [name for name in held if "cgroup" in name]


def test_removed_with_the_jail(start_runtime: StartRuntime, site: CgroupSite) -> None:
    """Closing a runtime removes its group, and so does the death of its jail."""
    runtime = start_runtime(limits="cgroup", snapshots="none")
    runtime.core.start()
    first = list(group_of(runtime).folders.values())
    assert all(folder.is_dir() for folder in first)
    runtime.execute("import os; os._exit(3)")
    until(lambda: not any(folder.exists() for folder in first))
    runtime.execute("1")
    second = list(group_of(runtime).folders.values())
    runtime.close()
    until(lambda: not any(folder.exists() for folder in second))


CLIENT = """
import sys
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy
runtime = PythonRuntime(sandbox=SandboxPolicy(limits="cgroup", preload=()))
runtime.core.start()
groups = set(runtime.core.backend.supervisor._account._group.folders.values())
print(*{str(group.parent) for group in groups}, flush=True)
if sys.argv[1] == "is killed":
    sys.stdin.read()
if sys.argv[1] == "closes":
    runtime.close()
    while any(group.exists() for group in groups):
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closes", "ends", "is killed"])
def test_left_by_no_client(site: CgroupSite, how: str) -> None:
    """A client that has closed its runtimes removes its own groups. Another leaves those in which a process is still
    about to end, which takes a busy machine long; the next client's sweep removes them."""
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        folders = [Path(name) for name in client.stdout.readline().split()]
        assert folders
        if how == "is killed":
            assert all(folder.is_dir() for folder in folders)
            client.send_signal(signal.SIGKILL)

    def gone() -> bool:
        left = [folder for folder in folders if folder.exists()]
        assert not left or how != "closes"
        for folder in left:
            sweep(folder.parent)
        return not left

    until(gone)


def test_a_sweep_leaves_the_living_alone(site: CgroupSite) -> None:
    """A locked folder is in use, empty or not."""
    groups = ClientGroups(site)
    try:
        for parent in groups._parents:
            sweep(parent)
        assert all((parent / groups._name).is_dir() for parent in groups._parents)
    finally:
        groups.remove()
    assert not any((parent / groups._name).exists() for parent in groups._parents)


def test_a_sweep_that_comes_while_a_client_makes_its_folder(
    site: CgroupSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a folder that is not locked yet for that of a dead client. The client makes another."""
    real, came = fcntl.flock, []

    def late(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not came:
            came.append(file)
            for parent in site.folders.values():
                sweep(parent)
        real(file, operation)

    monkeypatch.setattr("cenote_security.walls.cgroups.fcntl.flock", late)
    groups = ClientGroups(site)
    assert came
    with ExitStack() as arrival:
        group = groups.make(SHARE, arrival)
    group.close()
    assert group.remove()
    groups.remove()


def test_limits_are_written_before_anybody_enters(site: CgroupSite) -> None:
    """Both versions have the same limits; the kernel's values are the requested ones."""
    groups = ClientGroups(site)
    with ExitStack() as arrival:
        group = groups.make(SHARE, arrival)
    try:
        name = {"cgroup v1": "memory.limit_in_bytes", "cgroup v2": "memory.max"}[site.version]
        assert SHARE.memory == int((group.folders["memory"] / name).read_text())
        assert SHARE.tasks == int((group.folders["pids"] / "pids.max").read_text())
        if site.version == "cgroup v1" and "cpu" in group.folders:
            assert 50_000 == int((group.folders["cpu"] / "cpu.cfs_quota_us").read_text())
    finally:
        group.close()
        assert group.remove()
        groups.remove()


def test_the_second_version_s_files(tmp_path: Path) -> None:
    """The files that would be written on a machine with v2, and how they are read, with a plain folder instead."""
    folder = tmp_path / "1"
    group = JailGroup("cgroup v2", dict.fromkeys(("memory", "pids", "cpu"), folder), SHARE)
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert {
        "memory.max": "67108864",
        "memory.swap.max": "0",
        "pids.max": "9",
        "cpu.max": "50000 100000",
    } == written
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n")
    (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\nsystem_usec 1\nnr_throttled 4\n")
    group._cpu = group._open("cpu", "cpu.stat", os.O_RDONLY)
    assert (1, 1.5) == (group.kills(), group.cpu_seconds())
    group.close()


@pytest.fixture
def second_version() -> Iterator[Path]:
    """A real group of the second version, with any controllers: entering, counting, killing need none."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    path = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    if path is None:
        pytest.skip("no hierarchy of the second version is mounted")
    folder = path / f"cenote-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no group of the second version can be made: {error}")
    yield folder
    for group in folder.iterdir():
        if group.is_dir():
            group.rmdir()
    folder.rmdir()


def test_a_real_group_of_the_second_version(second_version: Path) -> None:
    """Entered through a descriptor, left only at the process's end, counted, killed at once, and then removed."""
    group = JailGroup("cgroup v2", {"hugetlb": second_version / "1"}, SHARE)
    with ExitStack() as entered:
        (entrance,) = group.entrances(entered)
        inside = (
            "import os, sys\nos.write(int(sys.argv[1]), b'0')\nos.fork()\nprint(flush=True)\nsys.stdin.read()"
        )
        arguments = [sys.executable, "-c", inside, str(entrance)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": (entrance,)}
        with subprocess.Popen(arguments, **pipes) as crowd:  # type: ignore[call-overload]
            assert [b"\n", b"\n"] == [crowd.stdout.readline(), crowd.stdout.readline()]
            assert str(crowd.pid) in (second_version / "1" / "cgroup.procs").read_text().split()
            assert not group.remove()
            group.kill()
            assert b"" == crowd.stdout.read()
    until(group.remove)
    group.close()


PLAIN = ZygoteFacts(
    image_key="",
    common=-1,
    isolation="strict",
    base_memory=0,
    own_tasks=0,
    tasks_each=1,
    preloaded=(),
    missing=(),
)


def test_a_policy_that_wants_groups_where_there_are_none() -> None:
    """An error that says so, never a silent watchdog."""
    accounting = Accounting(Reactor())
    accounting._without = PermissionError(13, "Permission denied", "/sys/fs/cgroup/memory")
    with pytest.raises(UnavailableError, match="control groups that this process may make"):
        accounting.group_for(SandboxPolicy(limits="cgroup"), PLAIN, ExitStack())
    assert accounting.group_for(SandboxPolicy(limits="auto"), PLAIN, ExitStack()) is None


def test_unknown_limits() -> None:
    with pytest.raises(UsageError, match="auto, cgroup or watchdog"):
        SandboxPolicy(limits="none")  # type: ignore[arg-type]


def test_the_mode_is_reported(start_runtime: StartRuntime, mode: str, site: CgroupSite) -> None:
    """By the runtime and by its status."""
    runtime: PythonRuntime = start_runtime(limits=mode)
    assert {"cgroup": site.version, "watchdog": "watchdog"}[mode] == runtime.limits == runtime.status().limits
