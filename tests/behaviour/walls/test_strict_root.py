"""The private root of the `strict` level, and what its namespaces hide."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.walls.fixtures import StartJail
from tests.support.walls.jails import ENTRIES, InJailError, Jail, zygote, zygote_pid

from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.zygote.client import ZygoteClient


def test_only_system_and_interpreter_are_there(strict_jail: Jail) -> None:
    """No homes but a link to the working directory, no /var, no /run, no /opt; folders on the way to the interpreter
    contain only that.
    """
    top = set(strict_jail.ask("import os; result = os.listdir('/')"))
    assert {"home"} == top & {"home", "var", "run", "opt", "mnt", "boot", "srv", "media"}
    assert ["user", "/workspace"] == strict_jail.ask(
        "import os; result = [*os.listdir('/home'), os.path.realpath('/home/user')]"
    )
    assert {"bin", "dev", "etc", "lib", "proc", "sys", "tmp", "usr", "workspace"} <= top
    assert {"passwd", "group", "hosts"} <= set(strict_jail.ask("import os; result = os.listdir('/etc')"))
    assert "shadow" not in strict_jail.ask("import os; result = os.listdir('/etc')")


def test_the_project_of_the_client_is_not_there(strict_jail: Jail) -> None:
    """Packages that a jail imports are visible, the folder that contains them is not."""
    root = Path(__file__).resolve().parents[3]
    assert [] == strict_jail.ask(
        f"import os; result = [name for name in ('pyproject.toml', '.git', 'README.md', 'platform')"
        f" if os.path.exists(os.path.join({str(root)!r}, name))]"
    )


def test_user_and_host_names(strict_jail: Jail) -> None:
    """Inside it is user 1000, cave, on a host cenote, whatever they are on the host."""
    assert [1000, "cave", "cenote", "/workspace"] == strict_jail.ask(
        "import os, pwd, socket; result = [os.getuid(), pwd.getpwuid(os.getuid()).pw_name, socket.gethostname(),"
        " os.path.expanduser('~')]"
    )


def test_own_processes_only(strict_jail: Jail) -> None:
    """Of all processes the worker sees only itself; the warden, which it may not trace, is not even visible."""
    assert ["2"] == strict_jail.ask("import os; result = [n for n in os.listdir('/proc') if n.isdigit()]")
    assert [2, 1] == strict_jail.ask("import os; result = [os.getpid(), os.getppid()]")


def test_every_namespace_is_new(strict_jail: Jail) -> None:
    """All seven differ from this process's."""
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert os.readlink(f"/proc/self/ns/{kind}") != os.readlink(f"/proc/{strict_jail.worker}/ns/{kind}")


def test_no_interface_is_up(strict_jail: Jail) -> None:
    """The network has a loopback interface that is down, and nothing else."""
    interfaces = strict_jail.ask(
        "result = [line.split(':')[0].strip() for line in open('/proc/net/dev')][2:]"
    )
    assert "lo" in interfaces
    assert {"eth0", "docker0", "wlan0"}.isdisjoint(interfaces)


def test_proc_is_read_only_and_masked(strict_jail: Jail) -> None:
    """No kernel setting can be changed, since some of them lead to host root (core_pattern)."""
    for name in ("sys/kernel/core_pattern", "sysrq-trigger", "self/oom_score_adj", "self/uid_map"):
        with pytest.raises(InJailError) as caught:
            strict_jail.ask(f"open('/proc/{name}', 'w').write('x')")
        assert caught.value.name in ("OSError", "PermissionError", "FileNotFoundError")
    assert "" == strict_jail.ask("result = open('/proc/cmdline').read()")


def test_no_mount_can_be_written_but_the_jail_s_own(strict_jail: Jail) -> None:
    """Everything is nosuid; only one tmpfs and device nodes are writable."""
    mounts = [
        line.split() for line in strict_jail.ask("result = open('/proc/self/mountinfo').read()").splitlines()
    ]
    assert all("nosuid" in fields[5].split(",") for fields in mounts)
    writable = {fields[4] for fields in mounts if "rw" in fields[5].split(",")}
    allowed = {"/tmp", "/workspace", "/dev/shm", "/proc"}
    assert set() == {
        path for path in writable if path not in allowed and not path.startswith(("/dev/", "/proc/"))
    }
    assert all("nodev" in fields[5].split(",") for fields in mounts if fields[4] in allowed)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into the zygote's root")
def test_the_proc_below_has_no_processes(strict: ZygoteClient) -> None:
    """The kernel requires an existing /proc before a jail mounts its own; that one shows no process."""
    names = [path.name for path in Path(f"/proc/{zygote_pid(strict)}/root/proc").iterdir()]
    assert "meminfo" in names
    assert [] == [name for name in names if name.isdigit()]


def test_disk_is_bounded_in_bytes_and_files(start_jail: StartJail) -> None:
    """Working directory, /tmp and /dev/shm share one limit, and small files count too."""
    jail = start_jail("strict", disk="8MiB", memory="256MiB")
    with pytest.raises(InJailError) as caught:
        jail.ask("open('a', 'wb').write(bytes(5 << 20)); open('/tmp/b', 'wb').write(bytes(5 << 20))")
    assert caught.value.errno == 28  # ENOSPC
    jail.ask("import os; os.unlink('a'); os.unlink('/tmp/b')")
    with pytest.raises(InJailError) as caught:
        jail.ask("for n in range(10_000): open(f'f{n}', 'w').close()")
    assert caught.value.errno == 28


def test_mounts_of_the_policy(tmp_path: Path) -> None:
    """Host folders and files appear where the policy says, read-only by default, and nothing beside them."""
    for name in ("data", "out", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        (tmp_path / name).chmod(0o777)
    mounts = (
        Mount(source=str(tmp_path / "data"), target="/data"),
        Mount(source=str(tmp_path / "data"), target="/workspace/inputs"),
        Mount(source=str(tmp_path / "data" / "file"), target="/data.txt"),
        Mount(source=str(tmp_path / "out"), writable=True),
    )
    policy = SandboxPolicy(isolation="strict", preload=(), mounts=mounts)
    with zygote(isolation="strict", preload=(), mounts=mounts) as client, Jail(client, policy) as jail:
        for path in ("/data/file", "/workspace/inputs/file", "/data.txt"):
            assert "data" == jail.ask(f"result = open({path!r}).read()")
            with pytest.raises(InJailError, match=r"Read-only|denied"):
                jail.ask(f"open({path!r}, 'a')")
        jail.ask(f"open({str(tmp_path / 'out' / 'new')!r}, 'w').write('made')")
        assert not jail.ask(f"import os; result = os.path.exists({str(tmp_path / 'secret')!r})")
    assert "made" == (tmp_path / "out" / "new").read_text()


def test_packages_below_a_folder_of_the_jail_s_own(tmp_path: Path) -> None:
    """A checkout below /tmp stays importable, read-only, though each jail has its own empty /tmp."""
    packages, linked = tmp_path / "packages", tmp_path / "linked"
    packages.mkdir()
    (packages / "found_early.py").write_text("answer = 41\n")
    (packages / "found_late.py").write_text("answer = 42\n")
    linked.symlink_to(packages)
    policy = SandboxPolicy(isolation="strict", preload=("found_early",))
    source = ZygoteClient(
        folders=(ENTRIES, str(linked)), entry="talking_worker", isolation="strict", preload=policy.preload
    )
    with source, Jail(source, policy) as jail:
        assert jail.ask("import sys; result = 'found_early' in sys.modules")
        assert 42 == jail.ask("import found_late; result = found_late.answer")
        with pytest.raises(InJailError, match=r"Read-only|denied"):
            jail.ask(f"open({str(packages / 'new')!r}, 'w')")
