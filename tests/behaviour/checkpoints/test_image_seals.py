"""A stored image is used only where this installation stored it, for that tenant, runtime and state."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cenote.runtime import PythonRuntime
from cenote_proto.v1 import checkpoint_pb2
from cenote_security.auth.capability import MasterKey
from cenote_security.ids import RuntimeId
from cenote_security.policy import SandboxPolicy
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.image_files import ImageFiles, StoredImage
from cenote_worker.runtime.state.image_seals import ImageSeals, ImageSubject, own_seals

Make = Callable[..., PythonRuntime]

OTHER = "its image is not the one that was stored here for this runtime and state: its seal does not match"
SANDBOX = SandboxPolicy(preload=())
CODE = "numbers = iter(range(9)); next(numbers); x = [1]"

images_are_made = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")

# -- the seal itself --

CONTENT = os.urandom(9 * 2**20)  # more than two parts
IMAGE = StoredImage(key="machine=1", size=len(CONTENT))
SUBJECT = ImageSubject(number=3, head=7, state=checkpoint_pb2.State(step=7), image=IMAGE)


def seals(tenant: str = "t", runtime: str = "r", key: bytes = b"key") -> ImageSeals:
    return ImageSeals(tenant, runtime, lambda: key)


def sealed(content: bytes = CONTENT, subject: ImageSubject = SUBJECT, by: ImageSeals | None = None) -> bytes:
    with SealedMemory.create([content]) as memory:
        return (by or seals()).seal(memory.fileno(), of_image(subject, size=memory.size))


def of_image(subject: ImageSubject, **changes: Any) -> ImageSubject:
    return replace(subject, image=replace(subject.image, **changes))


def changed(at: int) -> bytes:
    return CONTENT[:at] + bytes([CONTENT[at] ^ 1]) + CONTENT[at + 1 :]


def test_a_seal_is_of_the_bytes_and_of_what_they_are_of() -> None:
    """The same each time; and another one if anything differs."""
    subjects = [
        replace(SUBJECT, **{name: value})
        for name, value in {
            "number": 4, "head": 8, "state": checkpoint_pb2.State(step=8),
        }.items()
    ]  # fmt: skip
    subjects += [
        of_image(SUBJECT, **{name: value})
        for name, value in {
            "key": "machine=2", "missing": ("x: a connection",), "common": b"1", "common_of": "zygote",
        }.items()
    ]  # fmt: skip
    owners = [seals(tenant="s"), seals(runtime="s"), seals("tr", ""), seals(key=b"yek")]
    found = [
        sealed(),
        *(sealed(changed(at)) for at in (0, 4 * 2**20, len(CONTENT) - 1)),
        *(sealed(content) for content in (b"", CONTENT[:-1], CONTENT + b"\0")),
        *(sealed(subject=subject) for subject in subjects),
        *(sealed(by=owner) for owner in owners),
    ]
    assert found[0] == sealed()
    assert {32} == {len(seal) for seal in found}
    assert len(found) == len(set(found))


def test_the_wrong_seal_and_none_are_refused() -> None:
    """With different reasons."""
    with SealedMemory.create([CONTENT]) as memory:
        seals().check(memory.fileno(), of_image(SUBJECT, seal=sealed()))
        for seal, reason in ((sealed(changed(5)), OTHER), (sealed()[:16], OTHER), (b"", "has no seal")):
            with pytest.raises(CheckpointRefusedError, match=reason):
                seals().check(memory.fileno(), of_image(SUBJECT, seal=seal))


def test_a_file_that_has_become_shorter_is_refused() -> None:
    """Nothing waits for the missing bytes."""
    with SealedMemory.create([CONTENT[:-9]]) as memory, pytest.raises(CheckpointRefusedError, match=OTHER):
        seals().check(memory.fileno(), of_image(SUBJECT, seal=sealed()))


def test_each_runtime_of_a_platform_has_a_key_of_its_own() -> None:
    """Which is none of its other keys."""
    master = MasterKey(secret=bytes(32))
    one, other = (master.for_runtime(RuntimeId(name)) for name in ("rt_one", "rt_other"))
    assert 4 == len({one.secret, other.secret, one.for_images(), other.for_images()})


# -- embedded runtimes --


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder for state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_key_is_private_and_outside_the_store(home: Path, folder: Path, make_runtime: Make) -> None:
    """All embedded runtimes of the user have it."""
    with SealedMemory.create([CONTENT]) as memory:
        by = [own_seals(name).seal(memory.fileno(), SUBJECT) for name in ("r", "r", "s")]
    assert [True, False] == [by[0] == each for each in by[1:]]
    (key,) = (path for path in home.glob("**/*") if path.is_file())
    assert (0o600, 0o700) == tuple(stat.S_IMODE(path.stat().st_mode) for path in (key, key.parent))
    runtime = asleep(make_runtime, folder)
    assert runtime.execute("open('copy', 'wb').write(b'')").success
    looked = runtime.execute(f"import os; os.path.exists({str(key)!r})")
    assert "False" == looked.value
    assert not [
        path for path in folder.glob("**/*") if path.is_file() and key.read_bytes() in path.read_bytes()
    ]


@images_are_made
def test_a_key_that_others_can_read_is_none(home: Path, folder: Path, make_runtime: Make) -> None:
    """Anybody could have made the image: the state goes by value, with the reason."""
    own_seals("r").check_key()
    (key,) = (path for path in home.glob("**/*") if path.is_file())
    key.chmod(0o644)
    runtime = asleep(make_runtime, folder)
    assert "[1]" == runtime.execute("x").value
    assert reason(runtime).startswith("images need a private key, and there is none: ")
    assert "chmod 600" in reason(runtime)


def asleep(
    make_runtime: Make, folder: Path, name: str = "r", code: str = CODE, **settings: Any
) -> PythonRuntime:
    runtime = make_runtime(store=folder, name=name, sandbox=settings.pop("sandbox", SANDBOX), **settings)
    assert runtime.execute(code).success
    runtime.hibernate()
    return runtime


def reason(runtime: PythonRuntime) -> str:
    """Why it has its state by value; empty for an image."""
    assert runtime.carried is not None
    assert ("exact" if not runtime.carried.reason else "rebuilt") == runtime.carried.how
    return runtime.carried.reason


def image(folder: Path, name: str = "r") -> Path:
    (path,) = (folder / name).glob("*.image")
    return path


def described(folder: Path, name: str = "r") -> StoredImage:
    files = ImageFiles(folder / name)
    found = files.described(files.numbers()[-1])
    assert found is not None
    return found


def forge(folder: Path, content: bytes | None = None, **facts: Any) -> None:
    """Changes what the file of the last image has, or says of it: any writer of the store can do that."""
    files, stored = ImageFiles(folder / "r"), described(folder)
    content = image(folder).read_bytes()[: stored.size] if content is None else content
    draft = files.draft(files.numbers()[-1])
    with SealedMemory.create([content]) as memory:
        draft.write(memory, lambda: None)
    draft.publish(replace(stored, **{"size": len(content), **facts}))


def content_of(folder: Path, name: str = "r") -> bytes:
    return image(folder, name).read_bytes()[: described(folder, name).size]


def restored(make_runtime: Make, folder: Path, **settings: Any) -> PythonRuntime:
    runtime = make_runtime(PythonRuntime.restore, folder, "r", **{"sandbox": SANDBOX, **settings})
    assert "[1]" == runtime.execute("x").value
    assert "1" == runtime.execute("next(numbers)").value
    return runtime


@images_are_made
def test_the_image_that_was_stored_is_used(make_runtime: Make, folder: Path) -> None:
    """Also by an object that has not written it, and from a copy of the store."""
    asleep(make_runtime, folder).close()
    path = image(folder)
    copy = path.read_bytes()
    path.unlink()
    path.write_bytes(copy)
    assert "" == reason(restored(make_runtime, folder))


@images_are_made
def test_the_image_of_another_runtime_is_refused(make_runtime: Make, folder: Path) -> None:
    """With the seal that it has, at the same number, in the same state by value."""
    for name in ("r", "other"):
        asleep(make_runtime, folder, name).close()
    image(folder).write_bytes(image(folder, "other").read_bytes())
    assert OTHER == reason(restored(make_runtime, folder))


@images_are_made
def test_the_image_of_an_older_state_is_refused(make_runtime: Make, folder: Path) -> None:
    """With the seal that it had."""
    runtime = asleep(make_runtime, folder)
    old = image(folder).read_bytes()
    assert runtime.execute("y = 1").success
    runtime.hibernate()
    runtime.close()
    image(folder).write_bytes(old)
    assert OTHER == reason(restored(make_runtime, folder))


@images_are_made
def test_the_image_of_another_environment_is_refused(make_runtime: Make, folder: Path) -> None:
    """Where the checkpoint says that it is of this one: its code would go on among other libraries."""
    asleep(make_runtime, folder, "other", sandbox=SandboxPolicy(preload=("json",))).close()
    asleep(make_runtime, folder).close()
    forge(folder, key=described(folder, "other").key)
    again = restored(make_runtime, folder, sandbox=SandboxPolicy(preload=("json",)))
    assert OTHER == reason(again)


@images_are_made
def test_the_image_of_another_installation_is_refused(
    make_runtime: Make, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copied store has no more than its states by value."""
    asleep(make_runtime, folder).close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert OTHER == reason(restored(make_runtime, folder))


@images_are_made
def test_an_image_without_a_seal_is_refused(make_runtime: Make, folder: Path) -> None:
    """As earlier versions stored them."""
    asleep(make_runtime, folder).close()
    forge(folder, seal=b"")
    assert "its image has no seal: an earlier version of Cenote has stored it" == reason(
        restored(make_runtime, folder)
    )
