"""Forks by an image of the process: a branch continues from its source's state, whatever that contains."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any, Literal

import pytest
from tests.support.exact_state import AFTERWARDS, QUESTIONS, STATE, outside
from tests.support.hosted.listening import NoHosts
from tests.waiting import until

from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.errors import UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.state_receiver import ENDED, CopyLine, ReceivedImage
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state import branches, transfer
from cenote_worker.runtime.state.branches import ForkOrder, copied
from cenote_worker.runtime.state.images import image_of
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.content import Content

Make = Callable[..., PythonRuntime]
Fork = Callable[..., list[PythonRuntime]]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")


def printed(runtime: PythonRuntime, code: str) -> str:
    result = runtime.execute(code)
    assert result.success, result.error
    return result.stdout


def how(runtime: PythonRuntime) -> str:
    carried = runtime.carried
    assert carried is not None
    return f"{carried.how} {carried.reason}".strip()


def backend(runtime: PythonRuntime) -> HostedRuntime:
    found = runtime.core.backend
    assert isinstance(found, HostedRuntime)
    return found


def test_a_branch_goes_on_where_its_source_is(make: Make, fork: Fork) -> None:
    """So does a branch of the branch, and the source itself."""
    source = make(functions=[Function(outside)])
    printed(source, STATE)
    first, second = fork(source, 2)
    (third,) = fork(first)
    assert {"exact"} == {how(each) for each in (first, second, third)}
    expected = printed(source, QUESTIONS)
    assert [expected] * 3 == [printed(each, QUESTIONS) for each in (first, second, third)]
    assert len({printed(each, AFTERWARDS) for each in (source, first, third)}) == 1


def test_a_branch_goes_back_and_is_merged(make: Make, fork: Fork) -> None:
    """It stores states of its own."""
    source = make()
    printed(source, "numbers = iter(range(100)); next(numbers); kept = [1]")
    (branch,) = fork(source)
    printed(branch, "kept.append(next(numbers))")
    printed(branch, "kept.append(next(numbers)); open('note', 'w').write('x')")
    branch.rollback(2)
    assert "[1, 1] 2\n" == printed(branch, "print(kept, next(numbers))")
    assert "False\n" == printed(branch, "import os; print(os.path.exists('note'))")
    source.merge(branch, names=["kept"])
    assert "[1, 1] 1\n" == printed(source, "print(kept, next(numbers))")


def test_a_kept_state_is_the_beginning(make: Make, fork: Fork) -> None:
    """The source is unchanged afterwards."""
    source = make()
    for _ in range(3):
        printed(
            source, "numbers = iter(range(9)) if 'numbers' not in globals() else numbers; at = next(numbers)"
        )
    (branch,) = fork(source, step=2)
    assert ("exact", "1 2\n", "2 3\n") == (
        how(branch), printed(branch, "print(at, next(numbers))"), printed(source, "print(at, next(numbers))"),
    )  # fmt: skip


DRAWS = """
import random, ssl, uuid, secrets, os
import numpy as np
mine = [random.random(), float(np.random.random())]
print(mine + [ssl.RAND_bytes(8), uuid.uuid4().hex, secrets.token_hex(8), os.urandom(8)])
"""


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_is_secret_never_repeats(make: Make, fork: Fork, deterministic: bool) -> None:
    """Random numbers do repeat, if the caller asks for it."""
    source = make()
    printed(source, DRAWS)
    made = [source, *fork(source, 3, deterministic=deterministic)]
    assert ["exact"] * 3 == [how(each) for each in made[1:]]
    drawn: list[list[Any]] = [eval(printed(each, DRAWS)) for each in made]
    for numbers in zip(*(each[:2] for each in drawn), strict=True):
        assert (1 if deterministic else 4) == len(set(numbers))
    for secrets in zip(*(each[2:] for each in drawn), strict=True):
        assert 4 == len(set(secrets))


def test_what_is_at_one_runtime_only_is_made_again_or_named(make: Make, fork: Fork) -> None:
    """Such as a connection. A reused descriptor number does not give access to another one."""
    source = make()
    printed(source, "import socket\nours, theirs = socket.socketpair()")
    printed(source, "class Kept:\n    def __reduce__(self): raise TypeError\nkept = Kept()")
    (again,) = fork(source)
    assert how(again).startswith("rebuilt ours: a connection")
    assert "b'y'\n" == printed(again, "_ = theirs.send(b'y'); print(ours.recv(1))")
    (branch,) = fork(source, partial=True)
    assert branch.carried is not None
    missing = sorted(line.partition(":")[0] for line in branch.carried.missing)
    assert ("exact", ["ours", "theirs"]) == (how(branch), missing)
    assert "Kept b''\n" == printed(branch, "print(type(kept).__name__, ours.recv(1))")
    assert "b'x'\n" == printed(source, "_ = theirs.send(b'x'); print(ours.recv(1))")


def test_runtimes_without_snapshots_fork_as_well(make: Make, fork: Fork) -> None:
    """They have no line to their warden."""
    source = make(sandbox=SandboxPolicy(snapshots="none"), functions=[Function(outside)])
    printed(source, "numbers = iter(range(9)); next(numbers)")
    (branch,) = fork(source)
    assert ("exact", "1 50\n") == (how(branch), printed(branch, "print(next(numbers), outside(5))"))
    with pytest.raises(UnavailableError, match="keeps no snapshots"):
        branch.snapshot("here")


@pytest.mark.parametrize("snapshots", ["auto", "none"])
def test_numbers_are_no_descriptors_of_cenote(
    make: Make, fork: Fork, snapshots: Literal["auto", "none"]
) -> None:
    """A program cannot have the numbers of those. That of a pipe of its own is one."""
    source = make(sandbox=SandboxPolicy(snapshots=snapshots))
    printed(source, "numbers = list(range(64))")
    assert ["exact"] * 2 == [how(each) for each in fork(source, 2)]
    printed(source, "import os\nends = list(os.pipe())")
    (branch,) = fork(source, partial=True)
    assert branch.carried is not None
    assert "ends" in " ".join((branch.carried.reason, *branch.carried.missing))


@pytest.mark.slow
def test_other_levels_fork_by_value(make: Make, fork: Fork) -> None:
    """And say so."""
    source = make(sandbox=SandboxPolicy(isolation="landlock"), variables=[Variable("x", 1)])
    printed(source, "y = x + 1")
    (branch,) = fork(source)
    assert ("rebuilt its jail cannot take an image", "2\n") == (how(branch), printed(branch, "print(y)"))


def test_threads_are_a_reason(make: Make, fork: Fork) -> None:
    """The reason is reported to the user."""
    source = make()
    printed(
        source,
        "import threading\nend = threading.Event(); x = 1\n"
        "waiting = threading.Thread(target=end.wait, name='mine'); waiting.start()",
    )
    (branch,) = fork(source, partial=True)
    assert how(branch).startswith("rebuilt threads were running")
    printed(source, "end.set(); waiting.join()")


def test_the_reason_may_come_after_the_end(make: Make, fork: Fork, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the copy's channel is seen first, and the jail's reason arrives then."""

    def ended(line: CopyLine) -> None:
        until(line._given_up)
        raise CheckpointRefusedError(ENDED)

    source = make()
    runtime = source.core.backend
    assert isinstance(runtime, HostedRuntime)
    printed(source, "import threading\nend = threading.Event()\nthreading.Thread(target=end.wait).start()")
    with monkeypatch.context() as patched:
        patched.setattr(CopyLine, "next", ended)
        with pytest.raises(CheckpointRefusedError, match="threads were running"):
            image_of(runtime, runtime.started(), partial=True)
    printed(source, "end.set()")


def test_a_jail_that_takes_no_image_gets_the_state_by_value(
    make: Make, fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the source is still unchanged."""
    source = make()
    printed(source, "x = 5")

    def refused(*_: object, **__: object) -> None:
        raise CheckpointRefusedError("not today")

    monkeypatch.setattr(branches, "put_image", refused)
    made = fork(source, 2)
    assert [("rebuilt not today", "5\n")] * 2 == [(how(each), printed(each, "print(x)")) for each in made]


LOOP = """
import ctypes
for line in open('/proc/self/maps'):
    ends, access = line.split()[:2]
    if access == 'r-xp' and 'vsyscall' not in line:
        start, end = (int(each, 16) for each in ends.split('-'))
        if (found := ctypes.string_at(start, end - start).find(bytes.fromhex('ebfe'))) >= 0:
            print(start + found)
            break
"""
"""Prints the address of a jump to itself."""

_NEXT_INSTRUCTION = 120
"""Where an image has the address that its process goes on at."""


@pytest.mark.slow
@pytest.mark.parametrize("dies", [True, False], ids=["dies", "hangs"])
def test_a_jail_that_fails_as_it_becomes_the_image_is_replaced(
    make: Make, fork: Fork, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Its branch gets the state by value in a fresh one, and those that come later do, too."""
    source = make()
    address = 0 if dies else int(printed(source, LOOP))
    printed(source, "x = [5]; numbers = iter(range(9)); next(numbers)")
    tries = list[Supervisor]()

    def damaged(supervisor: Supervisor, image: ReceivedImage, **settings: Any) -> None:
        tries.append(supervisor)
        held = _damaged(image, _NEXT_INSTRUCTION, address.to_bytes(8, "little"))
        try:
            transfer.put_image(supervisor, held, **settings)
        finally:
            held.close()

    monkeypatch.setattr(branches, "put_image", damaged)
    monkeypatch.setattr(transfer, "_LEAST_FOR_AN_IMAGE", 30 if dies else 0.5)
    with copied(backend(source), ForkOrder()) as copy:
        made = [copy.runtime(NoHosts(), name=str(number)) for number in range(2)]
        try:
            for each in made:
                each.start()
        finally:
            for each in made:
                each.close()
    assert 1 == len(tries)
    assert tries[0].death is not None
    for each in made:
        assert each.carried is not None
        assert "rebuilt" == each.carried.how
        assert "jail ended while it was filled" in each.carried.reason
    (branch,) = fork(source)
    assert how(branch).startswith("rebuilt the runtime's jail ended while it was filled")
    assert "[5] 1\n" == printed(branch, "print(x, next(numbers))")
    assert "[5] 1\n" == printed(source, "print(x, next(numbers))")


def test_a_source_that_has_gone_on_is_no_replacement(
    make: Make, fork: Fork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state by value is another one than that of the other branches."""
    source = make()
    printed(source, "x = 5")

    def failed(*_: object, **__: object) -> None:
        printed(source, "x = 6")
        raise UnavailableError("the jail has ended")

    monkeypatch.setattr(branches, "put_image", failed)
    with pytest.raises(CheckpointRefusedError, match="the runtime has gone on since"):
        fork(source)


def test_patience_grows_with_the_image() -> None:
    """A slow disk reads 50 MB/s."""
    assert [30.0, 50.0] == [transfer.image_patience(size) for size in (0, 10**9)]


@pytest.mark.slow
def test_a_branch_of_another_zygote_is_exact_too(
    make: Make, fork: Fork, leave_zygotes: Callable[[], object]
) -> None:
    """As after a restart of a platform whose runtimes have gone on: the branch gets the memory of the former one."""
    source = make(functions=[Function(outside)])
    printed(source, STATE)
    for _ in range(2):
        leave_zygotes()
        (source,) = fork(source)
        assert "exact" == how(source)
    unforked = make(functions=[Function(outside)])
    printed(unforked, STATE)
    assert printed(unforked, QUESTIONS) == printed(source, QUESTIONS)


REPLACE_A_PAGE = """
import ctypes, mmap, sys

found = [value for module in list(sys.modules.values()) for value in list(vars(module).values())]
documents = [value.__doc__ for value in found if isinstance(value, type)]
texts = [text for text in documents if isinstance(text, str) and len(text) > 2 * mmap.PAGESIZE]
maps = [line.split() for line in open("/proc/self/maps") if "/memfd:cenote-common" in line]
ranges = [[int(end, 16) for end in line[0].split("-")] for line in maps]
page = next(-(-id(t) // mmap.PAGESIZE - 1) * mmap.PAGESIZE for t in texts if any(a <= id(t) < b for a, b in ranges))
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
new = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), 3, 0x22, -1, ctypes.c_long(0)))
ctypes.memmove(new, page, mmap.PAGESIZE)
moved = libc.mremap(new, ctypes.c_size_t(mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 3, ctypes.c_void_p(page))
print(moved == page)
"""
"""Of the memory that all jails of a zygote have in common, inside a text that only reads use."""


@pytest.mark.parametrize(
    "before", [REPLACE_A_PAGE, "heap = [bytearray(5000) for _ in range(20_000)]; print(True)"]
)
def test_a_jail_with_another_memory_than_a_fresh_one_becomes_an_image(make: Make, before: str) -> None:
    """Allocators give memory back and take some at any time, so that a jail has neither all pages of its zygote nor
    the heap of a fresh one.
    """
    source, other = make(), make()
    printed(source, "numbers = iter(range(10)); next(numbers)")
    assert "True\n" == printed(other, before)
    image, _ = image_of(backend(source), backend(source).started(), partial=False)
    try:
        transfer.put_image(backend(other).started(), image, draw_anew=True, patience=20)
    finally:
        image.close()
    assert "1 [False, False]\n" == printed(
        other, "print(next(numbers), [name in globals() for name in ('page', 'heap')])"
    )


def test_an_image_of_another_environment_is_refused(make: Make) -> None:
    """Before anything has changed: the jail continues."""
    source, other = make(), make(sandbox=SandboxPolicy(preload=("json",)))
    printed(source, "x = 1")
    printed(other, "y = 2")
    image, _ = image_of(backend(source), backend(source).started(), partial=False)
    try:
        with pytest.raises(
            CheckpointRefusedError, match="another environment: jails begin with other modules"
        ):
            transfer.put_image(backend(other).started(), image, draw_anew=True, patience=20)
    finally:
        image.close()
    assert "2\n" == printed(other, "print(y)")


def _damaged(image: ReceivedImage, at: int, data: bytes) -> ReceivedImage:
    memory = image.image.memory
    assert memory is not None
    content = bytearray(os.pread(memory.fileno(), image.image.size, 0))
    content[at : at + len(data)] = data
    return ReceivedImage(
        image.state, (Content(size=len(content), count=0, memory=SealedMemory.create([content])),)
    )


def test_a_forged_image_harms_only_the_jail_that_becomes_it(make: Make) -> None:
    """The jail refuses it, ends, or computes something else. Client and source are unaffected."""
    source = make()
    printed(source, "x = [1, 2, 3]")
    image, _ = transfer.ImageRequest(backend(source), backend(source).started()).received()
    tables = int.from_bytes(os.pread(image.image.memory.fileno(), 8, 16), "little")  # type: ignore[union-attr]
    forged, refused = b"\xff" * 8, list[str]()
    places = [0, 8, 16, 24, 32, 40, 64, 120, 128, 136, 200, tables, tables + 8, tables + 40, 4096 * 9]
    try:
        for place in places:
            victim = make()
            damaged = _damaged(image, place, forged)
            try:
                supervisor = backend(victim).started()
                transfer.put_image(supervisor, damaged, draw_anew=True, patience=5)
            except Exception as error:
                refused.append(str(error))
            finally:
                damaged.close()
            victim.close()
    finally:
        image.close()
    assert refused
    assert all(refused)
    assert "[1, 2, 3]\n" == printed(source, "print(x)")


def test_branches_share_what_they_do_not_write(make: Make) -> None:
    """One image serves all."""
    source = make()
    printed(source, "import numpy as np; large = np.ones(12_500_000)")
    with copied(backend(source), ForkOrder()) as copy:
        assert isinstance(copy._held, ReceivedImage)
        assert 100_000_000 < copy._held.image.size < 140_000_000
    made = source.fork(count=4)
    try:
        assert ["12500000.0\n"] * 4 == [printed(each, "print(large.sum())") for each in made]
        lines = "open('/proc/self/smaps_rollup') if 'Private_Dirty' in line"
        own = f"print(sum(int(line.split()[1]) for line in {lines}))"
        assert all(int(printed(each, own)) < 60_000 for each in made)
    finally:
        for each in made:
            each.close()
