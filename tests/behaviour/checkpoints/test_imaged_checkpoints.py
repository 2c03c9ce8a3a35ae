"""Checkpoints with an image of the process: a restore is exact; where that cannot be, the result says why."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.checkpoints.test_checkpoints import kill, value
from tests.support.checkpoints.imaged import finish, images, states_of
from tests.waiting import PATIENCE, until

from cenote.runtime import CheckpointStore, PythonRuntime, foretold
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import IncompleteRestoreError
from cenote_worker.checkpoints.image_files import ImageDraft, ImageFiles
from cenote_worker.runtime.state.images import ProcessImages
from cenote_worker.transport.image_parts import ImageParts

Make = Callable[..., PythonRuntime]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")

ONLY_IN_AN_IMAGE = "import time\nmoments = (each for each in [time.time(), 2, 3, 4, 5]); _ = next(moments)"
"""Nothing else can have it: it has no pickle, and its steps may give something else."""


def how(runtime: PythonRuntime) -> str:
    carried = runtime.carried
    assert carried is not None
    return f"{carried.how} {carried.reason}".strip()


def begun(make_runtime: Make, folder: Path, code: str = ONLY_IN_AN_IMAGE, **settings: Any) -> PythonRuntime:
    runtime = make_runtime(store=folder, name="r", sandbox=SandboxPolicy(preload=()), **settings)
    assert runtime.execute(code).success
    return runtime


def restored(make_runtime: Make, folder: Path, *which: str | int, **settings: Any) -> PythonRuntime:
    settings.setdefault("sandbox", SandboxPolicy(preload=()))
    return make_runtime(PythonRuntime.restore, folder, "r", *which, **settings)


def test_each_labelled_state_is_restored_exactly(make_runtime: Make, folder: Path) -> None:
    """Also after the newest one was made; and the runtime goes on from there."""
    runtime = begun(make_runtime, folder)
    runtime.checkpoint("first")
    assert "2" == value(runtime, "next(moments)")
    runtime.checkpoint("second")
    assert "3" == value(runtime, "next(moments)")
    runtime.close()
    for label, expected in (("second", "3"), ("first", "2")):
        again = restored(make_runtime, folder, label)
        assert (expected, "exact") == (value(again, "next(moments)"), how(again))
        again.checkpoint()
        again.close()
    again = restored(make_runtime, folder)
    assert ("3", "exact") == (value(again, "next(moments)"), how(again))


def test_it_is_foretold_for_here_and_for_elsewhere(make_runtime: Make, folder: Path) -> None:
    """By value it says what would be missing in any other place."""
    runtime = begun(make_runtime, folder)
    runtime.checkpoint()
    runtime.close()
    told = foretold(folder, "r")
    assert (True, (), False) == (told.exact_here, told.image_lacks, told.complete)
    assert "moments: " in str(told.missing)
    assert "here, in the environment that it had: exact" in str(told)
    ImageFiles(folder / "r").delete(1)
    told = foretold(folder, "r")
    assert (False, "no image of its process was stored with that state") == (told.exact_here, told.image)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def forge(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 9 : 4096 * 9 + 8] = b"\xff" * 8
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (Path.unlink, "no image of its process was stored with that state"),
        (cut, "its image is gone, or is not whole"),
        (forge, "its image is not the one that was stored here for this runtime and state"),
    ],
)
def test_without_its_image_a_state_goes_by_value(
    make_runtime: Make, folder: Path, damage: Callable[[Path], None], reason: str
) -> None:
    """Where that has all of it. Else nothing begins, unless the caller accepts the loss."""
    runtime = begun(make_runtime, folder, "x = [1]")
    runtime.checkpoint("whole")
    assert runtime.execute(ONLY_IN_AN_IMAGE).success
    runtime.checkpoint("lacking")
    runtime.close()
    for path in (folder / "r").glob("*.image"):
        damage(path)
    assert foretold(folder, "r").image.startswith(reason)
    again = restored(make_runtime, folder, "whole")
    assert "[1]" == value(again, "x")
    assert how(again).startswith(f"rebuilt {reason}")
    again.close()
    with pytest.raises(IncompleteRestoreError, match="moments"):
        restored(make_runtime, folder, "lacking")
    again = restored(make_runtime, folder, "lacking", partial=True)
    assert "([1], False)" == value(again, "x, 'moments' in globals()")
    assert how(again).startswith(f"rebuilt {reason}")


def test_another_environment_is_said(make_runtime: Make, folder: Path) -> None:
    """Whether it is the same shows only in a jail: so the restore begins one before it refuses."""
    runtime = begun(make_runtime, folder)
    runtime.checkpoint()
    runtime.close()
    other = SandboxPolicy(preload=("json",))
    with pytest.raises(
        IncompleteRestoreError, match=r"moments.*of another environment: jails begin with other"
    ):
        restored(make_runtime, folder, sandbox=other)
    again = restored(make_runtime, folder, partial=True, sandbox=other)
    assert "False" == value(again, "'moments' in globals()")
    assert again.carried is not None
    assert "moments" in str(again.carried.missing)
    assert how(again).startswith("rebuilt its image is of another environment: ")


def test_a_crash_goes_back_to_the_image(make_runtime: Make, folder: Path) -> None:
    """In the same process, more than once."""
    runtime = begun(make_runtime, folder)
    runtime.checkpoint()
    for _ in range(2):
        kill(runtime)
        assert not runtime.execute("1").success
        assert ("2", "exact") == (value(runtime, "next(moments)"), how(runtime))


def test_going_back_is_exact(make_runtime: Make, folder: Path) -> None:
    """To a state that has not all by value; and forward again."""
    runtime = begun(make_runtime, folder)
    runtime.checkpoint("first")
    assert "2" == value(runtime, "next(moments)")
    states_of(runtime).go_back("first")
    assert ("2", "exact") == (value(runtime, "next(moments)"), how(runtime))
    finish(runtime)
    ImageFiles(folder / "r").delete(1)
    with pytest.raises(IncompleteRestoreError, match="moments"):
        states_of(runtime).go_back("first")
    assert "3" == value(runtime, "next(moments)")


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Images are written once it is set."""
    write, go_on = ImageDraft.write, threading.Event()

    def waits(self: ImageDraft, image: Any, check: Callable[[], None], parts: ImageParts) -> None:
        assert go_on.wait(PATIENCE)
        write(self, image, check, parts)

    monkeypatch.setattr(ImageDraft, "write", waits)
    return go_on


def test_a_call_does_not_wait_for_the_image(
    make_runtime: Make, folder: Path, slow_disk: threading.Event
) -> None:
    """The checkpoint is there, cells run, and the image is that of the state which was asked for."""
    runtime = begun(make_runtime, folder, "x = 1")
    runtime.checkpoint("one")
    assert "2" == value(runtime, "x += 1; x")
    assert [] == images(folder)
    slow_disk.set()
    runtime.close()
    assert [1] == images(folder)
    again = restored(make_runtime, folder)
    assert ("1", "exact") == (value(again, "x"), how(again))


def test_the_process_is_copied_while_its_state_is_stored(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a cell that comes right after the checkpoint does not wait for that, and changes nothing in the image."""
    runtime, begin = begun(make_runtime, folder, "x = 1"), ProcessImages.begin

    def after_a_cell(*args: Any, **settings: Any) -> None:
        assert "2" == value(runtime, "x += 1; x")
        begin(*args, **settings)

    monkeypatch.setattr(ProcessImages, "begin", after_a_cell)
    runtime.checkpoint()
    runtime.close()
    again = restored(make_runtime, folder)
    asked = "import os; x, os.getpriority(os.PRIO_PROCESS, 0)"
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert (f"(1, {own})", "exact") == (value(again, asked), how(again))


def test_a_later_state_ends_an_image_that_is_being_written(
    make_runtime: Make, folder: Path, slow_disk: threading.Event
) -> None:
    """It would be deleted then."""
    runtime = begun(make_runtime, folder, "x = 1")
    runtime.checkpoint()
    runtime.execute("x = 2")
    runtime.checkpoint()
    slow_disk.set()
    runtime.close()
    until(lambda: not list((folder / "r").glob("*.part")))
    assert [2] == images(folder)
    again = restored(make_runtime, folder, 1)
    reason = "no image of its process was stored with that state"
    assert ("1", f"rebuilt {reason}") == (value(again, "x"), how(again))


def test_images_stay_for_labels_and_for_the_newest(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For so many of them; another process counts on. They go with their checkpoints."""
    monkeypatch.setattr("cenote_worker.runtime.state.images._LASTING", 2)
    runtime = begun(make_runtime, folder, "x = 1")
    for label in ("a", "", "b", "c", ""):
        runtime.execute("x += 1")
        runtime.checkpoint(label)
        finish(runtime)
    assert [3, 4, 5] == images(folder)
    runtime.close()
    again = restored(make_runtime, folder, "b")
    again.checkpoint("d")
    again.close()
    assert [4, 6] == images(folder)
    CheckpointStore(folder).folder("r").delete(4)
    assert [6] == images(folder)
    CheckpointStore(folder).remove("r")
    assert [] == [path for path in folder.rglob("*") if path.is_file()]


def test_a_durable_runtime_has_one_when_it_is_idle(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after each call. By value it would lack something."""
    monkeypatch.setattr("cenote_worker.runtime.state.checkpoints.REST_SECONDS", 0.1)
    runtime = begun(make_runtime, folder, durable=True)
    until(lambda: [1] == images(folder))
    assert "2" == value(runtime, "next(moments)")
    until(lambda: [2] == images(folder))
    runtime.close()
    again = restored(make_runtime, folder, durable=True)
    assert ("3", "exact") == (value(again, "next(moments)"), how(again))


def test_object_stores_have_none(make_runtime: Make) -> None:
    """A process cannot map what is there."""
    store = "memory://imaged-checkpoints"
    runtime = make_runtime(store=store, name="r")
    value(runtime, "x = 1")
    runtime.checkpoint()
    runtime.close()
    reason = "images are stored on this machine's disks only"
    assert reason == foretold(store, "r").image
    again = make_runtime(PythonRuntime.restore, store, "r")
    assert ("1", f"rebuilt {reason}") == (value(again, "x"), how(again))


def test_what_it_lacks_is_a_reason_to_go_by_value(make_runtime: Make, folder: Path) -> None:
    """A connection is made again by its step."""
    runtime = begun(make_runtime, folder, "import socket\nours, theirs = socket.socketpair()")
    runtime.checkpoint()
    runtime.close()
    again = restored(make_runtime, folder)
    assert "b'y'" == value(again, "_ = theirs.send(b'y'); ours.recv(1)")
    assert how(again).startswith("rebuilt ours: a connection")
