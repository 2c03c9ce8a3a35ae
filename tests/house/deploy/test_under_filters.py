"""A jail of the level `strict` starts under the system-call filters of deploy/, and they do refuse other calls."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.house.deploy.manifests import DEPLOY, ROOT
from tests.house.deploy.test_systemd_unit import SYSTEMD, UNIT, parse

from cenote_security.walls.probe import probe

LIBRARY = "libseccomp.so.2"
PROFILE = json.loads((DEPLOY / "seccomp.json").read_text())

ALLOW, ERRNO = 0x7FFF0000, 0x00050000

CHILD = f"""
import ctypes, json, sys
library = ctypes.CDLL({LIBRARY!r})
library.seccomp_init.restype = ctypes.c_void_p
library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
library.seccomp_load.argtypes = [ctypes.c_void_p]
context = library.seccomp_init({ALLOW})
for name, code in json.loads(sys.argv[1]):
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:  # the others are of other machines
        assert 0 == library.seccomp_rule_add(context, {ERRNO} | code, number, 0), name
assert 0 == library.seccomp_load(context)
"""

JAIL = """
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy
with PythonRuntime(sandbox=SandboxPolicy(isolation="strict", preload=())) as runtime:
    print(runtime.execute("6 * 7").value)
"""

REFUSED = """
import os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(library.seccomp_syscall_resolve_name(sys.argv[2].encode()), 0, 0, 0), ctypes.get_errno())
"""


def of_profile() -> list[tuple[str, int]]:
    return [(name, group["errnoRet"]) for group in PROFILE["syscalls"] for name in group["names"]]


def of_unit() -> list[tuple[str, int]]:
    (line,) = parse(UNIT.read_text())["Service"]["SystemCallFilter"]
    assert line.startswith("~")
    return [(name, errno.EPERM) for group in line[1:].split() for name in _members(group)]


def _members(group: str) -> Iterator[str]:
    command = [str(SYSTEMD), "syscall-filter", group]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    for name in (line.strip() for line in listed.splitlines()[1:]):
        if name.startswith("@"):
            yield from _members(name)
        elif name and not name.startswith("#"):
            yield name


def under(filters: list[tuple[str, int]], code: str, *arguments: str) -> str:
    """The output of a fresh Python that has put itself under a filter, as root or not."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD + code, json.dumps(filters), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


@pytest.fixture(autouse=True, scope="module")
def libseccomp() -> None:
    """The library with which container engines and systemd build their filters."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        pytest.skip("libseccomp is not installed here")


@pytest.fixture(scope="module")
def strict() -> None:
    if missing := probe().missing(["namespaces", "landlock", "seccomp", "mount proc"]):
        pytest.skip(f"no jail of this level can be had here: {missing[0].name}")


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
def test_a_jail_starts_under_the_profile_of_containers() -> None:
    """No jail needs what the profile refuses."""
    assert "42" == under(of_profile(), JAIL)


@pytest.mark.slow
@pytest.mark.usefixtures("strict")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_a_jail_starts_under_the_filter_of_the_unit() -> None:
    """Nor what the unit refuses, as this machine's systemd resolves its groups."""
    assert "42" == under(of_unit(), JAIL)


@pytest.mark.parametrize(
    ("name", "code"),
    [("keyctl", errno.EPERM), ("userfaultfd", errno.EPERM), ("io_uring_setup", errno.ENOSYS)],
)
def test_the_profile_refuses(name: str, code: int) -> None:
    """With the errno that libraries expect."""
    assert f"-1 {code}" == under(of_profile(), REFUSED, name)


def test_the_profile_names_each_call_once_and_none_that_jails_are_made_with() -> None:
    """Both Docker and Kubernetes read it; an action that they do not know, or a call named twice, is an error."""
    names = [name for name, _ in of_profile()]
    assert sorted(set(names)) == sorted(names)
    needed = {"clone", "clone3", "mount", "pivot_root", "seccomp", "setns", "umount2", "unshare"}
    assert set() == needed & set(names)
    assert {"SCMP_ACT_ERRNO"} == {group["action"] for group in PROFILE["syscalls"]}
