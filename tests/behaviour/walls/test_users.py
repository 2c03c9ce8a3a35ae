"""Users of jails on the host: started by root, each jail has its own user, and so its own share of resources."""

from __future__ import annotations

import array
import fcntl
import os
import resource
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.processes import CHOOSES_NUMBERS, status_of
from tests.support.walls.fixtures import StartJail
from tests.support.walls.jails import zygote_pid
from tests.waiting import until

from cenote_security.errors import UnavailableError
from cenote_security.walls import identity
from cenote_security.walls.identity import BLOCKS, FIRST, PER_ZYGOTE, UserIds
from cenote_security.walls.limits import tasks_of
from cenote_worker.zygote.client import ZygoteClient
from cenote_worker.zygote.serve import UidSlots

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has users to give away")


def user_of(pid: int) -> int:
    return int(status_of(pid)["Uid"].split()[0])


# -- users ------------------------------------------------------------------------------------------------


@as_root
def test_each_jail_has_its_own_user(level: str, start_jail: StartJail) -> None:
    """All processes of a jail are one user; no other jail's, not the zygote's, not root."""
    jails = [start_jail(level) for _ in range(3)]
    users = [user_of(jail.warden) for jail in jails]
    assert users == [user_of(jail.worker) for jail in jails]
    assert 3 == len(set(users))
    assert all(FIRST < user < FIRST + BLOCKS * PER_ZYGOTE for user in users)


@as_root
def test_two_zygotes_share_no_user(
    strict: ZygoteClient, landlock: ZygoteClient, start_jail: StartJail
) -> None:
    """Each holds the lock of a block, which contains the users of all its jails."""
    blocks = {(user_of(start_jail(level).warden) - FIRST) // PER_ZYGOTE for level in ("strict", "landlock")}
    assert 2 == len(blocks)
    for block in blocks:
        assert _is_locked(block)


def _is_locked(block: int) -> bool:
    with open(identity.LOCK_FILE, "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, block)
        except OSError:
            return True
        return False


@as_root
def test_what_the_zygote_keeps_of_root(strict: ZygoteClient, start_jail: StartJail) -> None:
    """The capability to end its jails, and, not effective, the ones to change users: its jails have neither.

    A warden may have the one to choose process numbers in its own pid namespace, and no worker has.
    """
    zygote, jail = status_of(zygote_pid(strict)), start_jail("strict")
    assert 0 != user_of(zygote_pid(strict))
    assert [1 << 5, 1 << 5 | 1 << 6 | 1 << 7] == [int(zygote[name], 16) for name in ("CapEff", "CapPrm")]
    sets = ("CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd")
    warden, worker = ([int(status_of(pid)[name], 16) for name in sets] for pid in (jail.warden, jail.worker))
    assert [0] * 5 == worker
    assert warden in ([0] * 5, [0, CHOOSES_NUMBERS, CHOOSES_NUMBERS, 0, 0])


# -- what the kernel counts per user ------------------------------------------------------------------------

INOTIFY = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.inotify_init1.restype = ctypes.c_int
result = 0
while result < {most} and libc.inotify_init1(0) >= 0:
    result += 1
"""

PIPES = """
import fcntl, os
held = []
def size():
    held.append(os.pipe())
    return fcntl.fcntl(held[-1][0], fcntl.F_GETPIPE_SZ)
result = 0
while result < {most} and size() >= 65536:
    result += 1
"""

UNDER_WAY = """
import array, resource, socket
held, rights = [], array.array("i", [0] * 250)
result = 0
try:
    while result < {most}:
        held.append(socket.socketpair())
        held[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_DONTWAIT)
        result += 1
except OSError:
    pass
"""


@as_root
@pytest.mark.parametrize(
    ("source", "all_there_are"),
    [(INOTIFY, 1000), (PIPES, 1900), (UNDER_WAY, 1000)],
    ids=["inotify instances", "pipe pages", "descriptors under way"],
)
def test_a_jail_that_uses_up_its_share(
    level: str, start_jail: StartJail, source: str, all_there_are: int
) -> None:
    """Its neighbour has its own share, and so has a jail that is started now (CVE-2013-4312, CVE-2016-2847)."""
    greedy, neighbour = start_jail(level), start_jail(level)
    assert 0 < greedy.ask(source.format(most=all_there_are)) < all_there_are
    for other in (neighbour, start_jail(level)):
        assert 1 == other.ask(source.format(most=1))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may have as many as it likes")
def test_a_user_with_too_many_descriptors_under_way(strict: ZygoteClient, start_jail: StartJail) -> None:
    """A start that is refused for that reason says so, and the next one succeeds."""
    assert strict.facts
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    one, other = socket.socketpair()
    with one, other:
        for _ in range(2):
            one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 200))])
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        try:
            with pytest.raises(UnavailableError, match="too many descriptors under way"):
                start_jail("strict")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert 42 == start_jail("strict").ask("result = 42")


# -- blocks and user slots ----------------------------------------------------------------------------------


def first_free(*blocks: int) -> int:
    block, file = identity.take_block(blocks)
    os.close(file)
    return block


def test_a_block_that_is_taken_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its holder ends, in any way."""
    monkeypatch.setattr(identity, "LOCK_FILE", str(tmp_path / "ids"))
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            identity.take_block([7])
            os.write(tell, b"taken")
            signal.pause()
        finally:
            os._exit(0)
    assert b"taken" == os.read(told, 5)
    assert 8 == first_free(7, 8)
    with pytest.raises(OSError, match="are all in use"):
        first_free(7)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert 7 == first_free(7)
    os.close(told)
    os.close(tell)


def test_no_file_for_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is random where no lock file can be made."""
    monkeypatch.setattr(identity, "LOCK_FILE", str(tmp_path / "missing" / "ids"))
    assert (5, -1) == identity.take_block([5, 6])


def test_one_user_for_all() -> None:
    """Where a container has no other user, slots make no difference."""
    shared = UserIds(65_533, shared=True)
    assert {65_533} == {shared.own, shared.of(1), shared.of(2)}


def test_who_ends_while_users_are_counted_is_no_error(tmp_path: Path) -> None:
    """Its folder exists, and its content does not any more: the kernel has a separate error for that."""
    process = subprocess.Popen(["sleep", "600"])
    folder = os.open(f"/proc/{process.pid}", os.O_RDONLY | os.O_DIRECTORY)
    process.kill()
    process.wait()
    (tmp_path / str(process.pid)).symlink_to(f"/proc/self/fd/{folder}")
    (tmp_path / str(os.getpid())).symlink_to("/proc/self")
    try:
        until(lambda: len(os.listdir("/proc/self/task")) == tasks_of(os.getuid(), tmp_path))
    finally:
        os.close(folder)


@given(st.integers(2, 6), st.lists(st.integers(0, 8)))
def test_living_jails_never_share_a_seat(count: int, events: list[int]) -> None:
    """In any order of starts and ends; one more than there are slots is refused."""
    seats, living = UidSlots(count), {}
    for jail in events:
        if jail in living:
            seats.leave(jail)
            del living[jail]
        elif len(living) == count - 1:
            with pytest.raises(OSError, match="no user id for another"):
                seats.take(jail)
        else:
            living[jail] = seats.take(jail)
        assert len(living) == len(set(living.values()))
        assert all(0 < seat < count for seat in living.values())


def test_a_seat_is_free_again_as_late_as_may_be() -> None:
    """The kernel releases a user's resources a little later than its processes."""
    seats = UidSlots(5)
    seen = []
    for jail in range(5):
        seen.append(seats.take(jail))
        seats.leave(jail)
    assert [1, 2, 3, 4, 1] == seen
