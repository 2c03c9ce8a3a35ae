"""Checkpoints with images when something fails in the middle: the state is there, exactly or by value, never lost."""

from __future__ import annotations

import errno
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.behaviour.checkpoints.test_checkpoints import value
from tests.behaviour.checkpoints.test_imaged_checkpoints import begun, how, restored
from tests.support.checkpoints.imaged import finish, images, killed, states_of
from tests.support.exact_state import AFTERWARDS, QUESTIONS, STATE, outside

from cenote.runtime import Function, PythonRuntime
from cenote_security.errors import QuotaExceededError
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.image_files import ImageDraft, ImageFiles
from cenote_worker.checkpoints.writer import CheckpointDraft

Make = Callable[..., PythonRuntime]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")

NUMPY = SandboxPolicy(preload=("numpy",))

MAKES = """
runtime = made(functions=[Function(outside)])
assert runtime.execute(STATE).success
runtime.checkpoint("all")
assert runtime.execute("del generator, database, cursor, log, lock; pairs = None").success
runtime.checkpoint()
end_here()
"""


@pytest.mark.slow
def test_a_killed_client_has_each_kind_again_in_another_process(make_runtime: Make, folder: Path) -> None:
    """Generators, a transaction in SQLite, iterators, handlers of `logging`, locks and the like: they work as in a
    process that goes on. The checkpoint is not the newest one.
    """
    killed(folder, MAKES)
    settings: dict[str, Any] = {"functions": [Function(outside)], "sandbox": NUMPY}
    never_stored = make_runtime(**settings)
    expected = [never_stored.execute(code).stdout for code in (STATE, QUESTIONS, AFTERWARDS)]
    again = restored(make_runtime, folder, "all", **settings)
    assert "9" == value(again, "local.value")
    assert "exact" == how(again)
    assert expected[1:] == [again.execute(code).stdout for code in (QUESTIONS, AFTERWARDS)]


IN_THE_MIDDLE = """
runtime = made()
assert runtime.execute("x = [1]").success
if {first}:
    runtime.checkpoint("former"); finish(runtime); runtime.execute("x = [2]")
ImageDraft.{method} = end_here
runtime.checkpoint()
runtime.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["write", "publish"])
@pytest.mark.parametrize("first", [False, True])
def test_a_kill_while_an_image_is_written_costs_the_image(
    make_runtime: Make, folder: Path, first: bool, method: str
) -> None:
    """The checkpoint is there by value, former ones have their images, nothing is left of the one that was cut."""
    killed(folder, IN_THE_MIDDLE.format(method=method, first=first))
    again = restored(make_runtime, folder, sandbox=NUMPY)
    expected = "[2]" if first else "[1]"
    reason = "rebuilt no image of its process was stored with that state"
    assert (expected, reason) == (value(again, "x"), how(again))
    assert [] == list((folder / "r").glob("*.part"))
    again.close()
    if first:
        again = restored(make_runtime, folder, "former", sandbox=NUMPY)
        assert ("[1]", "exact") == (value(again, "x"), how(again))


SHARED = """
runtime = made()
code = "import random; large = random.Random(1).randbytes(40 * 2**20); moments = iter([1, 2]); x = [1]"
assert runtime.execute(code).success
runtime.checkpoint("former"); finish(runtime); runtime.execute("x = [2]")
link = ImageFiles.link_base
def linked(*given):
    link(*given); end_here()
ImageFiles.link_base = linked
runtime.checkpoint()
runtime.close()
"""


@pytest.mark.slow
def test_a_kill_before_an_image_that_shares_another_one_is_whole(make_runtime: Make, folder: Path) -> None:
    """Nothing is left of it, and the other one is whole."""
    killed(folder, SHARED)
    again = restored(make_runtime, folder, sandbox=NUMPY)
    reason = "rebuilt no image of its process was stored with that state"
    assert ("[2]", reason) == (value(again, "x"), how(again))
    assert [] == [path.name for path in (folder / "r").iterdir() if path.suffix in (".part", ".base")]
    again.close()
    again = restored(make_runtime, folder, "former", sandbox=NUMPY)
    assert ("[1]", "exact") == (value(again, "x"), how(again))
    assert [1] == images(folder)


def full(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_the_image(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so does one that would be nearly full."""
    runtime = begun(make_runtime, folder, "x = [1]")
    monkeypatch.setattr(ImageFiles, "free", lambda _self: 2**20)
    runtime.checkpoint("nearly")
    finish(runtime)
    monkeypatch.undo()
    monkeypatch.setattr(ImageDraft, "write", full)
    runtime.checkpoint("full")
    runtime.close()
    monkeypatch.undo()
    assert [] == images(folder)
    for label, reason in (
        ("full", "its image could not be written: No space left on device"),
        ("nearly", "its image would have taken most of what is free on the disk"),
    ):
        again = restored(make_runtime, folder, label)
        assert ("[1]", f"rebuilt {reason}") == (value(again, "x"), how(again))
        again.close()


def test_images_give_way_to_a_checkpoint_on_a_full_disk(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a help only; the state is not."""
    runtime = begun(make_runtime, folder, "x = [1]")
    runtime.checkpoint("first")
    finish(runtime)
    assert [1] == images(folder)
    add = CheckpointDraft.add

    def until_images_go(self: CheckpointDraft, chunk: memoryview, *, dense: bool) -> bytes:
        return full() if images(folder) else add(self, chunk, dense=dense)

    monkeypatch.setattr(CheckpointDraft, "add", until_images_go)
    runtime.execute("x = [2]")
    assert 2 == runtime.checkpoint("second").number
    runtime.close()
    again = restored(make_runtime, folder, "first")
    assert "[1]" == value(again, "x")
    assert how(again) == "rebuilt no image of its process was stored with that state"


def test_images_give_way_to_a_checkpoint_at_a_quota(make_runtime: Make, folder: Path) -> None:
    """Otherwise images would have a durable runtime's answers refused."""
    runtime = begun(make_runtime, folder, "x = [1]")
    runtime.checkpoint("first")
    finish(runtime)
    states = states_of(runtime)

    @contextmanager
    def room(size: int) -> Iterator[None]:
        if images(folder) or size > 2**20:
            raise QuotaExceededError("storage", 0, size, 2**20, "bytes", "delete checkpoints")
        yield

    states._room = states.processes.room = room
    runtime.execute("x = [2]")
    assert 2 == runtime.checkpoint("second").number
    finish(runtime)
    assert [] == images(folder)
    runtime.close()
    again = restored(make_runtime, folder)
    assert "[2]" == value(again, "x")
    assert "storage" in how(again)


def test_the_image_of_another_runtime_is_not_used(make_runtime: Make, folder: Path) -> None:
    """With the seal that it has. A process in it would have the rights of this one."""
    other = make_runtime(store=folder, name="other", sandbox=SandboxPolicy(preload=()))
    runtime = begun(make_runtime, folder, "x = [1]")
    for each in (other, runtime):
        each.execute("x = [1]")
        each.checkpoint()
        each.close()
    (mine,), (theirs,) = ((folder / name).glob("*.image") for name in ("r", "other"))
    mine.write_bytes(theirs.read_bytes())
    again = restored(make_runtime, folder)
    assert "[1]" == value(again, "x")
    assert how(again) == (
        "rebuilt its image is not the one that was stored here for this runtime and state: its seal does not match"
    )
