"""Hibernation by an image of the process: what wakes is what slept; where that cannot be, the result says why."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.behaviour.checkpoints.test_checkpoints import kill, value
from tests.support.exact_state import AFTERWARDS, QUESTIONS, STATE, outside

from cenote.runtime import CheckpointStore, Function, PythonRuntime, foretold
from cenote_security.errors import QuotaExceededError
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.checkpoints.errors import IncompleteRestoreError
from cenote_worker.checkpoints.image_files import ImageDraft, ImageFiles
from cenote_worker.jail.state.image_unsafe import LIBRARY
from cenote_worker.runtime.state.checkpoints import Checkpoints

Make = Callable[..., PythonRuntime]
EndZygotes = Callable[[], None]

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")


def printed(runtime: PythonRuntime, code: str) -> str:
    result = runtime.execute(code)
    assert result.success, (result.error, runtime.carried)
    return result.stdout


def how(runtime: PythonRuntime) -> str:
    carried = runtime.carried
    assert carried is not None
    return f"{carried.how} {carried.reason}".strip()


def images(folder: Path) -> list[int]:
    """Numbers of the checkpoints that have an image."""
    files = ImageFiles(folder / "r")
    return [number for number in files.numbers() if (found := files.described(number)) and found.size]


def keeping(runtime: PythonRuntime) -> Checkpoints:
    states = runtime.core.backend.refill  # type: ignore[attr-defined]
    assert isinstance(states, Checkpoints)
    return states


def asleep(make_runtime: Make, folder: Path, code: str, **settings: Any) -> PythonRuntime:
    runtime = make_runtime(store=folder, name="r", **settings)
    printed(runtime, code)
    runtime.hibernate()
    return runtime


def test_what_wakes_is_what_slept(make_runtime: Make, folder: Path) -> None:
    """More than once, and what wakes works as what has never slept. By value, most of it would be missing."""
    runtime, other = (
        make_runtime(store=folder, name=name, functions=[Function(outside)]) for name in ("r", "never-slept")
    )
    expected = [printed(other, code) for code in (STATE, QUESTIONS, AFTERWARDS)]
    printed(runtime, STATE)
    for _ in range(2):
        runtime.hibernate(partial=True)
        assert not runtime.core.running
        assert "9\n" == printed(runtime, "print(local.value)")
        assert ("exact", ()) == (how(runtime), runtime.carried.missing)  # type: ignore[union-attr]
    assert expected[1:] == [printed(runtime, code) for code in (QUESTIONS, AFTERWARDS)]


def test_numbers_are_no_descriptors_of_cenote(make_runtime: Make, folder: Path) -> None:
    """Also not of those that the process had when it fell asleep."""
    runtime = asleep(make_runtime, folder, "numbers = list(range(64)); kept = iter(numbers)")
    for number in range(2):
        assert f"{number}\n" == printed(runtime, "print(next(kept))")
        assert ("exact", ()) == (how(runtime), runtime.carried.missing)  # type: ignore[union-attr]
        runtime.hibernate()


def test_the_steps_go_on(make_runtime: Make, folder: Path) -> None:
    """Their numbers, the record and rollbacks do; files are as they were."""
    runtime = asleep(make_runtime, folder, "numbers = iter(range(9)); open('note', 'w').write('1')")
    assert "0 1\n" == printed(runtime, "print(next(numbers), open('note').read())")
    printed(runtime, "at = next(numbers); open('note', 'w').write('2')")
    runtime.rollback(2)
    assert "1 1\n" == printed(runtime, "print(next(numbers), open('note').read())")
    assert 5 == runtime.execute("1").step


def test_a_jail_that_ends_later_begins_with_the_same_process(make_runtime: Make, folder: Path) -> None:
    """Until another state is stored. A program that was seeded draws the same numbers again; keys never repeat."""
    draws = "print([random.random(), next(numbers)]); print(ssl.RAND_bytes(8), secrets.token_hex(8), uuid.uuid4())"
    code = "import random, ssl, secrets, uuid; random.seed(1); ssl.RAND_bytes(8); numbers = iter(range(9))"
    runtime = asleep(make_runtime, folder, code)
    drawn = []
    for _ in range(2):
        drawn.append(printed(runtime, draws).splitlines())
        assert "exact" == how(runtime)
        kill(runtime)
        assert not runtime.execute("1").success
    (first, keys), (again, others) = drawn
    assert first == again
    assert not set(keys.split()) & set(others.split())
    printed(runtime, "1")
    runtime.checkpoint()
    runtime.close()
    assert [2] == images(folder)


def test_a_store_that_is_opened_again_has_the_process_too(make_runtime: Make, folder: Path) -> None:
    """Then the image is read once, to compare it."""
    functions = [Function(outside, host=True)]
    asleep(make_runtime, folder, "numbers = iter(range(9)); next(numbers)", functions=functions).close()
    again = make_runtime(PythonRuntime.restore, folder, "r", functions=functions)
    assert ("1 20\n", "exact") == (printed(again, "print(next(numbers), outside(2))"), how(again))


def test_other_functions_are_a_reason(make_runtime: Make, folder: Path) -> None:
    """The process holds stubs of those that it had."""

    def outside(n: str) -> str:
        return f"other {n}"

    asleep(
        make_runtime, folder, "x = 1", functions=[Function(lambda n: n, name="outside", host=True)]
    ).close()
    again = make_runtime(PythonRuntime.restore, folder, "r", functions=[Function(outside, host=True)])
    assert "other 1" == value(again, "outside(str(x))").strip("'")  # type: ignore[union-attr]
    assert "rebuilt other functions or values are given than the process had" == how(again)


SLEEPER = """
import json, os, signal, sys
sys.path[:] = json.loads(sys.argv[2])  # which Ray, for one, adds to: jails see the folders there
from cenote.runtime import Function, PythonRuntime
from cenote_security.policy import SandboxPolicy
from tests.support.exact_state import STATE, outside
sandbox = SandboxPolicy(preload=("numpy",))
runtime = PythonRuntime(store=sys.argv[1], name="r", functions=[Function(outside)], sandbox=sandbox)
assert runtime.execute(STATE).success
runtime.hibernate(partial=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_what_slept_when_its_process_was_killed_wakes_in_another(
    end_zygotes: EndZygotes, make_runtime: Make, folder: Path
) -> None:
    """With its open files, generators and database. So does what has slept again after that, and a branch of it."""
    ended = subprocess.run([sys.executable, "-c", SLEEPER, str(folder), json.dumps(sys.path)], cwd=ROOT)
    assert -signal.SIGKILL == ended.returncode
    functions = [Function(outside)]
    never_slept = make_runtime(store=folder, name="never-slept", functions=functions)
    expected = [printed(never_slept, code) for code in (STATE, QUESTIONS, AFTERWARDS)]
    again = make_runtime(PythonRuntime.restore, folder, "r", functions=functions, partial=True)
    for _ in range(2):
        assert "9\n" == printed(again, "print(local.value)")
        assert "exact" == how(again)
        branch = again.fork()
        assert "exact" == how(branch)
        branch.close()
        again.hibernate(partial=True)
        end_zygotes()
    assert expected[1:] == [printed(again, code) for code in (QUESTIONS, AFTERWARDS)]


@pytest.mark.slow
def test_the_heap_grows_and_shrinks_under_another_zygote(
    end_zygotes: EndZygotes, make_runtime: Make, folder: Path
) -> None:
    """The kernel's heap is elsewhere each time, below or above the one before."""
    keep = "kept = [bytes(5000) for _ in range(2000)]; numbers = iter(range(99))"
    churn = (
        "few = [bytearray(9000 + n) for n in range(4000)]; many = [str(n) for n in range(300_000)]; del few, many\n"
        "print(next(numbers), sum(map(len, kept)))"
    )
    runtime = asleep(make_runtime, folder, keep, sandbox=SandboxPolicy(preload=()))
    for turn in range(6):
        end_zygotes()
        assert [f"{2 * turn + n} 10000000\n" for n in range(2)] == [printed(runtime, churn) for _ in range(2)]
        assert "exact" == how(runtime)
        runtime.hibernate()


def test_zygotes_have_layouts_of_their_own(end_zygotes: EndZygotes, make_runtime: Make, folder: Path) -> None:
    """So a program that has woken cannot know the addresses of another jail from its own."""
    where = "print([line.split('-')[0] for line in open('/proc/self/maps') if 'libc.so' in line][0])"
    runtime = make_runtime(store=folder, name="r")
    first = printed(runtime, where)
    runtime.hibernate()
    end_zygotes()
    assert (first, "exact") == (printed(runtime, where), how(runtime))
    assert first != printed(make_runtime(), where)


def test_a_library_that_was_exchanged_is_a_reason(
    end_zygotes: EndZygotes, make_runtime: Make, folder: Path, tmp_path: Path
) -> None:
    """Even if its size and time are as before: the image's code would go on in the middle of another one."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    library = libraries / "some.so"
    shutil.copy2(LIBRARY, library)
    sandbox = SandboxPolicy(preload=(), mounts=[Mount(source=str(libraries), target="/libraries")])
    code = (
        "import ctypes; ctypes.CDLL('/libraries/some.so') and None; numbers = iter(range(9)); next(numbers)"
    )
    runtime = asleep(make_runtime, folder, code, sandbox=sandbox)
    end_zygotes()
    shutil.copy2(library, libraries / "new")
    (libraries / "new").rename(library)
    assert "1\n" == printed(runtime, "print(next(numbers))")
    assert "rebuilt the process cannot become another one" in how(runtime)
    assert "a file that is mapped there is not what it was" in how(runtime)


def test_another_environment_gets_the_state_by_value(make_runtime: Make, folder: Path) -> None:
    """One with other preloaded modules is one."""
    asleep(make_runtime, folder, "numbers = iter(range(9)); next(numbers); x = [1]").close()
    again = make_runtime(PythonRuntime.restore, folder, "r", sandbox=SandboxPolicy(preload=("json",)))
    assert "1 [1]\n" == printed(again, "print(next(numbers), x)")
    assert (
        "rebuilt its image is of another environment: jails begin with other modules, folders or mounts"
        == how(again)
    )


def cut(content: bytearray) -> None:
    del content[-5:]


def forge(content: bytearray) -> None:
    content[4096 * 9 : 4096 * 9 + 8] = b"\xff" * 8


OTHER_SIZE = "its image is gone, or is not whole"
OTHER_IMAGE = (
    "its image is not the one that was stored here for this runtime and state: its seal does not match"
)


@pytest.mark.parametrize(
    ("damage", "reason"), [(cut, OTHER_SIZE), (forge, OTHER_IMAGE), (bytearray.clear, OTHER_SIZE)]
)
def test_a_damaged_image_is_not_used(
    make_runtime: Make, folder: Path, damage: Callable[[bytearray], None], reason: str
) -> None:
    """The state is there by value."""
    runtime = asleep(make_runtime, folder, "x = [1]")
    (path,) = (folder / "r").glob("*.image")
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    assert "[1]" == value(runtime, "x")
    assert f"rebuilt {reason}" == how(runtime)


def memories(folder: Path) -> list[Path]:
    """The store's copies of zygotes' memory."""
    return sorted(folder.glob("*.common"))


def remove(path: Path) -> None:
    path.unlink()


def damage_content(damage: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def damaged(path: Path) -> None:
        content = bytearray(path.read_bytes())
        damage(content)
        path.chmod(0o600)
        path.write_bytes(content)

    return damaged


def test_images_have_one_copy_of_their_zygotes_memory(make_runtime: Make, folder: Path) -> None:
    """It counts once, and goes with the last image that needs it."""
    runtime = asleep(make_runtime, folder, "x = 1")
    other = make_runtime(store=folder, name="other")
    printed(other, "x = 2")
    other.hibernate()
    (memory,) = memories(folder)
    names = [folder / name / "000000000001.common" for name in ("r", "other")]
    assert all(name.samefile(memory) for name in names)
    size, whole = memory.stat().st_size, CheckpointStore(folder).size()
    assert memory.name == f"{hashlib.sha256(memory.read_bytes()).hexdigest()}.common"
    (image,) = (folder / "r").glob("*.image")
    assert size > 2**22
    assert size + 2 * image.stat().st_size < whole < 2 * size + 2 * image.stat().st_size
    printed(runtime, "x = 2")
    runtime.checkpoint()
    keeping(runtime).processes.finish()
    assert [memory] == memories(folder)
    assert "2" == value(other, "x")
    for left, awake, name in (([memory], other, "other"), ([], runtime, "r")):
        awake.close()
        CheckpointStore(folder).remove(name)
        assert left == memories(folder)


def test_a_jail_of_the_same_zygote_needs_no_file_of_its_memory(make_runtime: Make, folder: Path) -> None:
    runtime = asleep(make_runtime, folder, "numbers = iter(range(9)); next(numbers)")
    remove(folder / "r" / "000000000001.common")
    assert ("1\n", "exact") == (printed(runtime, "print(next(numbers))"), how(runtime))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [remove, damage_content(forge)])
def test_damaged_memory_of_a_zygote_is_not_used(
    end_zygotes: EndZygotes, make_runtime: Make, folder: Path, damage: Callable[[Path], None]
) -> None:
    """The state is there by value. The next image has the memory that it needs."""
    runtime = asleep(make_runtime, folder, "numbers = iter(range(9)); next(numbers)")
    damage(folder / "r" / "000000000001.common")
    end_zygotes()
    for expected in (
        "rebuilt the memory of its zygote is gone from the store, or is not what was written",
        "exact",
    ):
        assert "next" in printed(runtime, "print('next' if next(numbers) else 0)")
        assert expected == how(runtime)
        runtime.hibernate()
        end_zygotes()


def test_where_files_have_one_name_each_image_has_its_own_copy(
    end_zygotes: EndZygotes, make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as on some file systems of removable disks."""

    def unlinkable(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unlinkable)
    runtime = asleep(make_runtime, folder, "numbers = iter(range(9)); next(numbers)")
    (memory,) = (folder / "r").glob("*.common")
    assert ([], True) == (memories(folder), CheckpointStore(folder).size() > memory.stat().st_size)
    end_zygotes()
    assert ("1\n", "exact") == (printed(runtime, "print(next(numbers))"), how(runtime))


def test_the_image_of_another_runtime_is_refused(make_runtime: Make, folder: Path) -> None:
    """The checkpoint says what its image contains."""
    runtime = asleep(make_runtime, folder, "x = 1")
    other = make_runtime(store=folder, name="other")
    printed(other, "x = 2")
    other.hibernate()
    (mine,), (theirs,) = ((folder / name).glob("*.image") for name in ("r", "other"))
    mine.write_bytes(theirs.read_bytes())
    assert "1" == value(runtime, "x")
    assert how(runtime) in (f"rebuilt {OTHER_IMAGE}", f"rebuilt {OTHER_SIZE}")


@pytest.mark.slow
@pytest.mark.parametrize("other", [False, True], ids=["same zygote", "other zygote"])
@pytest.mark.parametrize("at", [0, 16, 64, 120, 136])
def test_a_jail_that_fails_to_wake_is_replaced(
    end_zygotes: EndZygotes,
    make_runtime: Make,
    folder: Path,
    at: int,
    monkeypatch: pytest.MonkeyPatch,
    other: bool,
) -> None:
    """A forged image harms the jail that becomes it, not the runtime: the next jail gets the state by value."""
    write = ImageDraft.write

    def forged(self: ImageDraft, image: Any, check: Callable[[], None], *parts: Any) -> None:
        view = image.map()
        view[at : at + 8] = b"\xff" * 8
        image.map = lambda: view
        write(self, image, check, *parts)

    monkeypatch.setattr(ImageDraft, "write", forged)
    runtime = asleep(make_runtime, folder, "x = [1]")
    assert [1] == images(folder)
    if other:
        end_zygotes()
    assert "[1]" == value(runtime, "x")
    assert how(runtime).startswith("rebuilt ")
    assert how(runtime) != "rebuilt"


def test_threads_and_connections_are_reasons(make_runtime: Make, folder: Path) -> None:
    """As for forks. A connection is made again by its step."""
    runtime = asleep(make_runtime, folder, "import socket\nours, theirs = socket.socketpair()")
    assert "b'y'\n" == printed(runtime, "_ = theirs.send(b'y'); print(ours.recv(1))")
    assert how(runtime).startswith("rebuilt ours: a connection")
    printed(runtime, "import threading\nend = threading.Event()\nthreading.Thread(target=end.wait).start()")
    runtime.hibernate(partial=True)
    printed(runtime, "x = 1")
    assert how(runtime).startswith("rebuilt threads were running")


def test_what_would_be_missing_elsewhere_is_refused(make_runtime: Make, folder: Path) -> None:
    """The image is lost with the zygote, and is no reason to lose a value. `partial` accepts that."""
    runtime = make_runtime(store=folder, name="r")
    printed(runtime, "import time\nmoments = (each for each in [time.time()]); numbers = [1]")
    with pytest.raises(IncompleteRestoreError, match="moments"):
        runtime.hibernate()
    assert (True, []) == (runtime.core.running, images(folder))
    runtime.hibernate(partial=True)
    assert ("True", "exact") == (value(runtime, "next(moments) > 0"), how(runtime))


def test_what_is_missing_is_named(make_runtime: Make, folder: Path) -> None:
    """With `partial`, connections are, and all else is exact."""
    runtime = make_runtime(store=folder, name="r")
    code = "import socket\nours, theirs = socket.socketpair(); numbers = iter(range(9)); next(numbers)"
    printed(runtime, code)
    runtime.hibernate(partial=True)
    assert "1 b''\n" == printed(runtime, "print(next(numbers), ours.recv(1))")
    assert runtime.carried is not None
    missing = sorted(line.partition(":")[0] for line in runtime.carried.missing)
    assert ("exact", ["ours", "theirs"]) == (how(runtime), missing)


def test_other_levels_sleep_by_value(make_runtime: Make, folder: Path) -> None:
    """And say so."""
    sandbox = SandboxPolicy(preload=(), isolation="landlock")
    runtime = asleep(make_runtime, folder, "x = 1", sandbox=sandbox)
    assert ("1", "rebuilt its jail cannot take an image") == (value(runtime, "x"), how(runtime))


def test_object_stores_have_no_images(make_runtime: Make) -> None:
    """A process cannot map what is there."""
    store = "memory://sleeping-processes"
    runtime = make_runtime(store=store, name="r")
    printed(runtime, "x = 1")
    runtime.hibernate()
    assert "1" == value(runtime, "x")
    assert "rebuilt images are stored on this machine's disks only" == how(runtime)


def test_a_full_disk_costs_the_image_only(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is stored by value as before."""

    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ImageDraft, "write", full)
    runtime = asleep(make_runtime, folder, "x = 1")
    assert "1" == value(runtime, "x")
    assert "rebuilt its image could not be written: No space left on device" == how(runtime)


def test_a_quota_costs_the_image_only(make_runtime: Make, folder: Path) -> None:
    """It counts all files of the store."""
    runtime = make_runtime(store=folder, name="r")
    printed(runtime, "x = 1")
    asked: list[int] = []

    @contextmanager
    def room(size: int) -> Iterator[None]:
        asked.append(size)
        if size > 2**20:
            raise QuotaExceededError("storage", 0, size, 2**20, "bytes", "delete checkpoints")
        yield

    keeping(runtime).processes.room = room
    runtime.hibernate()
    assert [True] == [size > 2**20 for size in asked]
    assert [] == memories(folder)
    assert "1" == value(runtime, "x")
    assert how(runtime).startswith("rebuilt ")
    assert "storage" in how(runtime)


def test_one_image_is_kept(make_runtime: Make, folder: Path) -> None:
    """Of the latest state, while that is the latest; it counts as stored, and goes with its checkpoint."""
    runtime = asleep(make_runtime, folder, "x = 1")
    assert [1] == images(folder)
    (path,) = (folder / "r").glob("*.image")
    assert CheckpointStore(folder).size() > path.stat().st_size > 2**20
    printed(runtime, "x = 2")
    runtime.hibernate()
    assert [2] == images(folder)
    CheckpointStore(folder).folder("r").delete(2)
    assert [] == images(folder)


def test_what_a_killed_writer_has_left_goes(make_runtime: Make, folder: Path) -> None:
    """An image whose checkpoint was not published, one that was not whole, and memory that no image needs."""
    asleep(make_runtime, folder, "x = 1").close()
    for suffix in (".image", ".image.part", ".common", ".common.part"):
        (folder / "r" / f"000000000002{suffix}").write_bytes(b"half")
    (folder / "0123.common").write_bytes(b"half")
    make_runtime(PythonRuntime.restore, folder, "r")
    left = [path.name for path in (folder / "r").iterdir() if ".image" in path.name or ".common" in path.name]
    assert ["000000000001.common", "000000000001.image"] == sorted(left)
    assert 1 == len(memories(folder))


def test_a_reset_forgets_the_process(make_runtime: Make, folder: Path) -> None:
    """The next jail has what was injected."""
    runtime = asleep(make_runtime, folder, "x = 1")
    runtime.reset()
    assert "False" == value(runtime, "'x' in globals()")
    assert runtime.carried is None


def test_a_program_of_the_lowest_priority_is_written_too(make_runtime: Make, folder: Path) -> None:
    """Its copy may not raise that. So it is where all of Cenote runs under `nice`."""
    runtime = asleep(make_runtime, folder, "import os; before = os.nice(19)")
    assert "19\n" == printed(runtime, "print(before)")
    assert "exact" == how(runtime)


def test_it_is_foretold(make_runtime: Make, folder: Path) -> None:
    """The state by value is described, which any jail can take; a note says that there is an image."""
    runtime = asleep(make_runtime, folder, "x = 1")
    assert foretold(folder, "r").exact_here
    printed(runtime, "x = 2")
    runtime.core.checkpoints.processes.finish()  # type: ignore[attr-defined]
    (folder / "r" / "000000000001.image").unlink()
    told = foretold(folder, "r")
    assert (False, "no image of its process was stored with that state") == (told.exact_here, told.image)
