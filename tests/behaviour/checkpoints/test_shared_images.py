"""An image has only what an earlier one lacks; what both have is in one file, which the last one takes with it."""

from __future__ import annotations

import hashlib
import platform
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.behaviour.checkpoints.test_checkpoints import value
from tests.behaviour.checkpoints.test_imaged_checkpoints import begun, how, restored
from tests.support.checkpoints.imaged import finish, images

from cenote.runtime import CheckpointStore, PythonRuntime
from cenote_worker.checkpoints.image_files import ImageFiles

Make = Callable[..., PythonRuntime]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")

LARGE = """
import hashlib, random
large = bytearray(random.Random(1).randbytes(40 * 2**20))
moments = (each for each in [1, 2, 3])
def change(at):
    large[at * 2**20] ^= 255
def digest():
    return hashlib.sha256(large).hexdigest()[:16]
"""


def digest_after(*changes: int) -> str:
    """What `digest()` gives after these changes, computed here."""
    large = bytearray(random.Random(1).randbytes(40 * 2**20))
    for at in changes:
        large[at * 2**20] ^= 255
    return repr(hashlib.sha256(large).hexdigest()[:16])


def size(folder: Path, number: int, suffix: str = "image") -> int:
    return (folder / "r" / f"{number:012d}.{suffix}").stat().st_size


@pytest.mark.slow
def test_an_image_has_what_the_one_before_lacks(make_runtime: Make, folder: Path) -> None:
    """Each is exact, in whichever order the others go, and so is what a restored process goes on with."""
    runtime = begun(make_runtime, folder, LARGE)
    runtime.checkpoint("first")
    finish(runtime)
    for number, label in ((2, "second"), (3, "third")):
        value(runtime, f"change({number}); x = {number}; next(moments)")
        runtime.checkpoint(label)
        finish(runtime)
    assert [1, 2, 3] == images(folder)
    whole = size(folder, 1)
    assert whole > 40 * 2**20
    assert [True, True] == [size(folder, number) < whole - 38 * 2**20 for number in (2, 3)]
    assert CheckpointStore(folder).size() < 3 * whole  # with the state by value, which is as large
    runtime.close()
    ImageFiles(folder / "r").delete(1)
    again = restored(make_runtime, folder, "second")
    expected = f"({digest_after(2)}, 2, 2)"
    assert (expected, "exact") == (value(again, "digest(), x, next(moments)"), how(again))
    value(again, "change(7)")
    again.checkpoint("fourth")
    again.close()
    again = restored(make_runtime, folder, "fourth")
    expected = f"({digest_after(2, 7)}, 3)"
    assert (expected, "exact") == (value(again, "digest(), next(moments)"), how(again))
    again.close()
    again = restored(make_runtime, folder, "third")
    assert (digest_after(2, 3), "exact") == (value(again, "digest()"), how(again))


@pytest.mark.slow
def test_the_last_image_takes_the_shared_file_with_it(make_runtime: Make, folder: Path) -> None:
    """A store has each byte once, and nothing when all images are gone."""
    runtime = begun(make_runtime, folder, LARGE)
    for _ in range(4):
        value(runtime, "change(5)")
        runtime.checkpoint()
        finish(runtime)
    inodes = {path.stat().st_ino for path in (folder / "r").glob("*.base")}
    assert (1, [4]) == (len(inodes), images(folder))
    runtime.close()
    assert ["000000000004.base"] == [path.name for path in (folder / "r").glob("*.base")]
    CheckpointStore(folder).folder("r").delete(4)
    assert [] == list((folder / "r").glob("*.base"))


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(30 * 2**20)


def forge(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(20 * 2**20)
        file.write(b"forged")


SEAL = "its image is not the one that was stored here for this runtime and state: its seal does not match"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "reason"),
    [(Path.unlink, "its image is gone, or is not whole"), (cut, SEAL), (forge, SEAL)],
)
def test_a_damaged_base_means_by_value(
    make_runtime: Make, folder: Path, damage: Callable[[Path], None], reason: str
) -> None:
    """With the reason, and all of the state."""
    runtime = begun(make_runtime, folder, LARGE.replace("moments", "# moments"))
    runtime.checkpoint()
    finish(runtime)
    value(runtime, "change(9); del change, digest, hashlib, random")
    runtime.checkpoint()
    runtime.close()
    damage(folder / "r" / "000000000002.base")
    again = restored(make_runtime, folder)
    asked = "import hashlib; hashlib.sha256(large).hexdigest()[:16]"
    assert (digest_after(9), f"rebuilt {reason}") == (value(again, asked), how(again))


@pytest.mark.slow
def test_a_state_that_differs_much_is_stored_whole(make_runtime: Make, folder: Path) -> None:
    """Then later ones share with that one."""
    runtime = begun(make_runtime, folder, LARGE)
    runtime.checkpoint("first")
    finish(runtime)
    value(runtime, "large[:] = random.Random(2).randbytes(40 * 2**20)")
    for label in ("second", "third"):
        runtime.checkpoint(label)
        finish(runtime)
        value(runtime, "change(1)")
    runtime.close()
    assert size(folder, 2) - 38 * 2**20 > size(folder, 3)
    bases = [(folder / "r" / name).stat().st_ino for name in ("000000000002.image", "000000000003.base")]
    assert bases[0] == bases[1]
