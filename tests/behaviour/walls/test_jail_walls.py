"""What model-written code cannot do, at each level with walls. Each technique is tried inside, checked outside."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import CHOOSES_NUMBERS, status_of
from tests.support.walls.fixtures import StartJail
from tests.support.walls.jails import InJailError, Jail
from tests.waiting import until

LIBC = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"


# An empty folder, or folders that only lead to the interpreter, may exist; nothing of the host's.
NOTHING_SEEN = ("FileNotFoundError", "PermissionError", [], [".pyenv"], ["cpu"], ["system"], ["user"])


def answer(jail: Jail, source: str) -> Any:
    """The value of `result` of a source, or the name of the error that it raises."""
    try:
        return jail.ask(source)
    except InJailError as error:
        return error.name


def refused(jail: Jail, source: str) -> str:
    """The name of the error that a source raises, or a failure of the test when it raises none."""
    with pytest.raises(InJailError) as caught:
        jail.ask(source)
    return caught.value.name


@pytest.mark.parametrize(
    "path",
    ["/etc/shadow", "/root", "/home", "/var/log", "/run", "/proc/1/environ", "/proc/kcore", "/sys/kernel"],
)
def test_host_files_cannot_be_read(jail: Jail, path: str) -> None:
    """Neither content nor listing; not by a link or a descriptor of a parent either."""
    for source in (
        f"import os; result = os.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r}).read()",
        f"import os; os.symlink({path!r}, 'link'); x = 'link'\n"
        "try:\n    result = os.listdir(x) if os.path.isdir(x) else open(x).read()\nfinally:\n    os.unlink('link')",
    ):
        assert answer(jail, source) in NOTHING_SEEN


def test_the_client_s_files_cannot_be_read(jail: Jail, tmp_path: Path) -> None:
    """A secret in a temporary folder, with all permissions given away."""
    secret = tmp_path / "secret"
    secret.write_text("canary")
    for folder in (secret, *secret.parents[:3]):
        folder.chmod(0o777)
    assert refused(jail, f"result = open({str(secret)!r}).read()") in ("FileNotFoundError", "PermissionError")
    assert refused(jail, f"open({str(tmp_path / 'new')!r}, 'w')") in ("FileNotFoundError", "PermissionError")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("folder", ["/usr/lib", "/etc", "/usr/bin", "/"])
def test_system_files_cannot_be_written(jail: Jail, folder: str) -> None:
    """Neither created, nor changed, nor removed."""
    assert refused(jail, f"open({folder + '/cenote-was-here'!r}, 'w')") in ("PermissionError", "OSError")
    assert not Path(folder, "cenote-was-here").exists()


def test_the_interpreter_cannot_be_changed(jail: Jail) -> None:
    """All jails and the client run it: a changed module would be code outside."""
    source = "import {0}; open({0}.__file__, 'a')"
    for module in ("json", "cenote_worker"):
        assert refused(jail, source.format(module)) in ("PermissionError", "OSError")


def test_no_capability_and_no_way_to_one(jail: Jail) -> None:
    """All five sets are empty, no_new_privs is on, a filter is in force, none of root's groups is left."""
    status = jail.ask(
        "result = dict(line.strip('\\n').split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)"
    )
    sets = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
    assert {"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapAmb": 0} == sets
    if os.geteuid() == 0 or jail.started.isolation == "strict":
        assert 0 == int(status["CapBnd"], 16)
    assert ("1", "2") == (status["NoNewPrivs"], status["Seccomp"])
    if os.geteuid() == 0:  # only a privileged process may leave a group
        assert "" == status["Groups"].strip()


def test_it_is_not_root_outside(jail: Jail) -> None:
    """The host sees the process as a user that owns nothing, or as the user who started it."""
    owners = {os.stat(f"/proc/{jail.worker}").st_uid, os.stat(f"/proc/{jail.worker}/status").st_uid}
    assert 0 not in owners


@pytest.mark.parametrize(
    "call",
    ["unshare(268435456)", "unshare(131072)", "mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None)", "umount2(b'/proc', 2)",
     "setns(0, 0)", "ptrace(16, 1, 0, 0)", "chroot(b'/tmp')", "syscall(323, 0)", "syscall(298, 0, 0, -1, -1, 0)"],
)  # fmt: skip
def test_kernel_doors_are_shut(jail: Jail, call: str) -> None:
    """Namespaces, mounts, tracing, userfaultfd, perf: EPERM, for any argument."""
    assert [-1, errno.EPERM] == jail.ask(LIBC + f"result = [libc.{call}, ctypes.get_errno()]")


def test_setuid_programs_give_nothing(jail: Jail) -> None:
    """su and mount are set-uid root on the host; no_new_privs and nosuid both stop that."""
    said = jail.ask(
        "import subprocess; result = subprocess.run(['/bin/mount', '-t', 'tmpfs', 'x', '/tmp'],"
        " capture_output=True, text=True).returncode"
    )
    assert said != 0


def test_no_network(jail: Jail) -> None:
    """No internet, no loopback service of the host, no name resolution."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = "import socket; socket.create_connection(({!r}, {}), timeout=5)"
        assert refused(jail, connect.format("127.0.0.1", port)) in ("OSError", "PermissionError")
        assert refused(jail, connect.format("169.254.169.254", 80)) in ("OSError", "PermissionError")
        assert refused(jail, "import socket; socket.getaddrinfo('example.org', 80)") == "gaierror"


def test_no_netlink_or_packet_socket(jail: Jail) -> None:
    """Kernel attack surface that no data work needs."""
    for family in (16, 17, 38, 40):
        assert "OSError" == refused(jail, f"import socket; socket.socket({family}, socket.SOCK_RAW, 0)")


def test_abstract_sockets_of_the_host_cannot_be_reached(jail: Jail) -> None:
    """They have no path, so no rule on files concerns them."""
    name = f"\0cenote-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        source = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert refused(jail, source) in ("ConnectionRefusedError", "PermissionError", "OSError")


def test_socket_files_of_the_host_cannot_be_reached(jail: Jail) -> None:
    """Landlock before ABI 9 lets a process connect to any socket file: here none can be named, or none connected."""
    # The path of a socket file has at most 107 bytes, whatever TMPDIR is.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as server:
        path = Path(folder) / "socket"
        server.bind(str(path))
        server.listen()
        for shown in (path, path.parent):
            shown.chmod(0o777)
        source = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
        assert refused(jail, source) in ("FileNotFoundError", "PermissionError", "OSError")


def test_other_processes_cannot_be_signalled(jail: Jail) -> None:
    """Neither the client nor the zygote: there is no such process, or no permission."""
    for pid in (os.getpid(), os.getppid()):
        assert refused(jail, f"import os; os.kill({pid}, 0)") in ("ProcessLookupError", "PermissionError")


def test_the_warden_cannot_be_harmed(jail: Jail) -> None:
    """The worker's parent can't be killed, stopped, traced, read or limited."""
    for number in (9, 19, 15, 2):
        assert answer(jail, f"import os; os.kill(os.getppid(), {number})") in (None, "PermissionError")
    assert refused(jail, "import os; result = open(f'/proc/{os.getppid()}/mem', 'rb').read(1)") in (
        "FileNotFoundError",
        "PermissionError",
    )
    assert "PermissionError" == refused(
        jail, "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1))"
    )
    assert {"op": "status", "id": 1} == {
        k: v for k, v in jail.say(op="status", id=1).items() if k in ("op", "id")
    }


def test_only_six_descriptors(jail: Jail) -> None:
    """None of the zygote's or the client's: /dev/null, a timer, output pipes, frames, the line to the warden."""
    jail.ask("result = 'past its start'")
    links = sorted(os.readlink(f"/proc/{jail.worker}/fd/{n}") for n in os.listdir(f"/proc/{jail.worker}/fd"))
    assert ["/dev/null", "anon_inode", "pipe", "pipe", "socket", "socket"] == [
        link.split(":")[0] for link in links
    ]


def chooses_numbers(pid: int) -> bool:
    return bool(int(status_of(pid)["CapEff"], 16) & CHOOSES_NUMBERS)


def test_no_cell_chooses_the_numbers_of_processes(jail: Jail) -> None:
    """A cell cannot write to the file that its warden writes to."""
    refused = jail.ask(
        "try:\n    open('/proc/sys/kernel/ns_last_pid', 'w').write('77'); result = 0\n"
        "except OSError as error:\n    result = error.errno"
    )
    assert refused in (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT)


@pytest.mark.skipif(os.geteuid() != 0, reason="a warden lets nobody but root look into it")
def test_the_warden_s_descriptors(jail: Jail, level: str) -> None:
    """The control socket, the line to the worker, /dev/null, the timer of its cells and the pipe that wakes it.

    And those for another worker: both pipes, both sockets, the rules that confine it, and its number.
    """
    place = f"/proc/{jail.warden}/fd"

    def kinds() -> list[str]:
        with suppress(FileNotFoundError):  # one was closed in the meantime
            links = [os.readlink(f"{place}/{number}") for number in os.listdir(place)]
            return sorted(link if link.startswith("anon") else link.split(":")[0] for link in links)
        return []

    rules = ["anon_inode:[landlock-ruleset]"] if level == "strict" else []
    last_pid = ["/proc/sys/kernel/ns_last_pid"] if chooses_numbers(jail.warden) else []
    expected = [*["/dev/null"] * 3, *last_pid, *rules, "anon_inode:[timerfd]", *["pipe"] * 4, *["socket"] * 4]
    expected.sort()
    # The worker may be ready before the warden has closed the descriptors that it was made with.
    until(lambda: expected == kinds())


def test_the_environment_is_scrubbed(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the jail's variables nor the zygote's initial ones in the kernel contain the client's."""
    monkeypatch.setenv("CANARY", "secret")
    assert "secret" not in str(jail.ask("import os; result = dict(os.environ)"))
    assert b"" == Path(f"/proc/{jail.worker}/environ").read_bytes().replace(b"LC_CTYPE=C.UTF-8\0", b"")


def test_the_policy_s_environment(start_jail: StartJail, level: str) -> None:
    """A policy adds variables and may replace ours; thread pools have the size of its CPUs, as counted by Python."""
    jail = start_jail(level, env={"GREETING": "hello", "LANG": "C"}, cpus=1.5)
    names = ("GREETING", "LANG", "OMP_NUM_THREADS", "HOME")
    greeting, lang, threads, home = jail.ask(f"import os; result = [os.environ[name] for name in {names}]")
    assert ("hello", "C", "2", jail.ask("import os; result = os.getcwd()")) == (greeting, lang, threads, home)
    assert 2 == jail.ask("import os; result = os.cpu_count()")


SEARCH = """
import re
found = []
with open('/proc/self/mem', 'rb', 0) as memory:
    for line in open('/proc/self/maps'):
        first, last = (int(end, 16) for end in line.split()[0].split('-'))
        if 'r' in line.split()[1] and '[v' not in line:
            memory.seek(first)
            try:
                found += re.findall(rb'canary-[0-9]{12}', memory.read(last - first))
            except OSError:
                pass
result = len(found)"""


@pytest.mark.slow
def test_a_policy_s_environment_is_not_in_another_jail_s_memory(start_jail: StartJail, level: str) -> None:
    """Jails are forks of one process; data that it had read for one of them would be in the next one's memory."""
    one = start_jail(level, env={"SECRET": "canary-123456789012"})
    assert 0 < one.ask(SEARCH)
    assert 0 == start_jail(level).ask(SEARCH)


def test_no_terminal_and_no_session_of_ours(jail: Jail) -> None:
    """/dev/tty cannot be opened; the worker leads a session of its own."""
    assert refused(jail, "open('/dev/tty')") in ("FileNotFoundError", "PermissionError", "OSError")
    assert jail.ask("import os; result = os.getsid(0) == os.getpid()")


def test_devices_are_few(jail: Jail) -> None:
    """/dev/null, zero, full, random and urandom; no disk, no memory, no kmsg, no fuse."""
    assert [True, "b'\\x00\\x00'"] == jail.ask(
        "print('x', file=open('/dev/null', 'w')); result = [len(open('/dev/urandom','rb').read(2)) == 2,"
        " repr(open('/dev/zero','rb').read(2))]"
    )
    for device in ("/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/vda", "/dev/ptmx", "/dev/kvm"):
        assert refused(jail, f"open({device!r}, 'rb')") in ("FileNotFoundError", "PermissionError", "OSError")


def test_jails_do_not_see_each_other(start_jail: StartJail, level: str) -> None:
    """Neither files nor processes of one jail are reachable in another."""
    one, other = start_jail(level), start_jail(level)
    path = one.ask("import os; open('mine', 'w').write('secret'); result = os.path.abspath('mine')")
    assert refused(other, f"result = open({path!r}).read()") in ("FileNotFoundError", "PermissionError")
    assert refused(other, f"import os; os.kill({one.worker}, 9)") in ("ProcessLookupError", "PermissionError")
    assert "secret" == one.ask("result = open('mine').read()")


def test_each_jail_draws_its_own_random_numbers(start_jail: StartJail, level: str) -> None:
    """Forked from one process, they would share every random state."""
    source = "import random, numpy; result = [random.random(), float(numpy.random.random())]"
    draws = [start_jail(level).ask(source) for _ in range(2)]
    assert draws[0][0] != draws[1][0]
    assert draws[0][1] != draws[1][1]
