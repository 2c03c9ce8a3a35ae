"""Large arrays are mapped where they are stored: private to the jail, verified, and out of reach of its code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.checkpoints.fixtures import store, writer_of

from cenote.runtime import PythonRuntime, Variable
from cenote_worker.checkpoints import writer as writing
from cenote_worker.checkpoints.errors import CheckpointDamagedError
from cenote_worker.checkpoints.restoring import LARGE, Restoration, read
from cenote_worker.checkpoints.store import CheckpointStore
from cenote_worker.process import file_systems
from cenote_worker.transport.chunks import CHUNK

_DESCRIPTORS = (
    "[__import__('os').readlink('/proc/self/fd/' + n) for n in __import__('os').listdir('/proc/self/fd')"
    " if __import__('os').path.exists('/proc/self/fd/' + n)]"
)


class Spy:
    """Unpickles as a list of the files that the process has open."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return eval, (_DESCRIPTORS,)


@pytest.fixture
def ready(folder: Path) -> Iterator[Callable[[], Restoration]]:
    """Reads the newest checkpoint of the folder."""
    made: list[Restoration] = []

    def ready() -> Restoration:
        checkpoints = CheckpointStore(folder)
        made.append(read(checkpoints, "r", checkpoints.manifest("r"), partial=False))
        return made[-1]

    yield ready
    for each in made:
        each.close()


def lent(restoration: Restoration) -> int:
    """How many parts are lent."""
    return sum(len(piece.lent) for piece in restoration.pieces)


def test_a_mapped_array_is_the_jails_own(make_runtime: Callable[..., PythonRuntime], folder: Path) -> None:
    """It lies in two files, may be written to, and outlives them. No code in the jail ever sees a descriptor of them:
    neither injected values nor stored ones.
    """
    runtime = make_runtime(store=folder, name="r")
    runtime.execute("import numpy as np; a = np.arange(2**19); c = a.copy()")
    runtime.checkpoint()
    runtime.execute(
        "a[:2**16] = c[2**16:0:-1]\n"
        f"class Spy:\n    def __reduce__(self): return eval, ({_DESCRIPTORS!r},)\nspy = Spy()"
    )
    runtime.checkpoint()
    runtime.close()
    again = make_runtime(PythonRuntime.restore, folder, "r", variables=[Variable("other", Spy())])
    sums = {path: sha256(path.read_bytes()).digest() for path in folder.glob("r/*.checkpoint")}
    seen = again.execute("type(spy) is list, [one for one in spy + other if 'checkpoint' in one]")
    assert "(True, [])" == seen.value, seen.error
    assert "3" == again.execute("sum('.checkpoint' in line for line in open('/proc/self/maps'))").value
    assert (
        "(True, True)"
        == again.execute("bool((a[:2**16] == c[2**16:0:-1]).all()), bool((a == c)[2**16:].all())").value
    )
    again.execute("a += 1; c[:] = 0")
    assert sums == {path: sha256(path.read_bytes()).digest() for path in sums}
    shutil.rmtree(folder)
    assert "(65537, 524288, 0)" == again.execute("int(a[0]), int(a[-1]), int(c.sum())").value


def test_what_is_whole_and_large_is_lent(folder: Path, ready: Callable[[], Restoration]) -> None:
    """Not a small part, nor one scattered over a file in chunks that existed before."""
    writer = writer_of(folder)
    blocks = [os.urandom(CHUNK) for _ in range(LARGE // CHUNK)]
    store(writer, odd=b"x", large=b"".join(blocks), small=b"".join(blocks)[:-1])
    store(writer, large=b"".join(blocks), scattered=b"".join(reversed(blocks)))
    assert [{0: 0}, {}, {}] == [piece.lent for piece in ready().pieces]


@pytest.mark.parametrize("size", [1, 0], ids=["as earlier versions wrote them", "elsewhere"])
def test_what_cannot_be_mapped_is_copied(
    size: int, folder: Path, ready: Callable[[], Restoration], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that begin within a page, and files on file systems that another machine may remove."""
    monkeypatch.setattr(
        *((writing, "PAGE", 1) if size else (file_systems, "_OF_THIS_MACHINE", frozenset[str]()))
    )
    content = os.urandom(LARGE)
    store(writer_of(folder), odd=b"x", large=content)
    restoration = ready()
    assert (0, content) == (lent(restoration), bytes(restoration.pieces[1].content.unpack()[0]))


@pytest.mark.parametrize("cut", [False, True])
def test_damage_is_found_before_anything_is_lent(
    cut: bool, folder: Path, ready: Callable[[], Restoration], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit, or the end of a file."""
    writer = writer_of(folder)
    content = os.urandom(LARGE)
    first, _ = store(writer, large=content), store(writer, large=content)
    path = folder / "r" / f"{first.number:012d}.checkpoint"
    with path.open("r+b") as file:
        file.seek(LARGE - 1)
        file.truncate() if cut else file.write(bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointDamagedError, match="cut off" if cut else "not what was written"):
        ready()
