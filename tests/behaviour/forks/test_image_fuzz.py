"""Damaged images: the jail that becomes one refuses it, ends, or computes something else. Nothing else notices."""

from __future__ import annotations

import os
import platform
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from tests.support.descriptors import opened
from tests.waiting import until

from cenote.runtime import PythonRuntime
from cenote_security.errors import CenoteError, UnavailableError
from cenote_security.policy import SandboxPolicy
from cenote_security.sealed_memory import SealedMemory
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.state_receiver import ReceivedImage
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state import transfer
from cenote_worker.transport.content import Content

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")

SANDBOX = SandboxPolicy(preload=(), snapshots="none")
PAGE: Final = 4096
FIELDS: Final = 288
"""Bytes of the header before the actions of signals; see `struct header` of `image.c`."""
LENGTHS: Final = {"size": 8, "tables": 16, "regions": 24, "runs": 32, "files": 40, "named": 48, "text": 56}
"""Where the header has them."""

GROWTH: Final = 64 * 2**20
"""Bytes that this process may grow by, whatever the number of images: what allocators keep."""

STATE = (
    "import os; numbers = iter(range(9)); next(numbers); kept = list(range(5000, 6000)); text = 'y' * 100_000"
)
ALIVE = "print(sum(kept), len(text), text.count('y'))"
EXPECTED = "5499500 100000 100000\n"

# -- damage --


def _word(rng: random.Random, former: int) -> int:
    """A number that a check may have forgotten."""
    return rng.choice(
        (
            0, 1, former ^ 1 << rng.randrange(64), former + rng.choice((-1, 1, -PAGE, PAGE, -8, 8)),
            2**64 - 1, 2**63, 2**63 - PAGE, 2**47 - PAGE, 2**47, rng.getrandbits(64), rng.getrandbits(32),
            former << rng.randrange(1, 20), former >> rng.randrange(1, 20),
        )
    ) % 2**64  # fmt: skip


def _set_word(content: bytearray, at: int, rng: random.Random) -> None:
    (former,) = struct.unpack_from("<Q", content, at)
    struct.pack_into("<Q", content, at, _word(rng, former))


def _length(content: bytearray, name: str) -> int:
    return int(struct.unpack_from("<Q", content, LENGTHS[name])[0])


def header(content: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 3))):
        _set_word(content, 8 * rng.randrange(rng.choice((FIELDS, FIELDS, PAGE)) // 8), rng)


def lengths(content: bytearray, rng: random.Random) -> None:
    for at in rng.sample(sorted(LENGTHS.values()), rng.choice((1, 1, 2))):
        _set_word(content, at, rng)


def tables(content: bytearray, rng: random.Random) -> None:
    begin, end = _length(content, "tables"), _length(content, "size")  # memory may follow that is not used
    for _ in range(rng.choice((1, 1, 2, 8))):
        _set_word(content, begin + 4 * rng.randrange((end - begin - 8) // 4), rng)


def pages(content: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 8, 64, 1024))):
        content[rng.randrange(PAGE, _length(content, "tables"))] ^= 1 << rng.randrange(8)


def wiped(content: bytearray, rng: random.Random) -> None:
    """A run of pages: zeros, or others of the image."""
    size = PAGE * rng.choice((1, 4, 64))
    to, source = (PAGE * rng.randrange(1, (_length(content, "tables") - size) // PAGE) for _ in range(2))
    content[to : to + size] = bytes(size) if rng.random() < 0.5 else content[source : source + size]


def truncated(content: bytearray, rng: random.Random) -> None:
    """Anywhere, at a page, or a few bytes before the end."""
    size = max(min(_length(content, "size"), len(content)), 2 * PAGE)
    cut = rng.choice(
        (rng.randrange(size), PAGE * rng.randrange(size // PAGE), size - rng.randrange(1, 64), 8)
    )
    del content[cut:]


Damage = Callable[[bytearray, random.Random], None]
KINDS: Final[tuple[Damage, ...]] = (pages, wiped, tables, header, lengths, truncated)
"""In an order in which each finds its place in what the ones before have damaged."""


def several(content: bytearray, rng: random.Random) -> None:
    for kind in sorted(rng.sample(KINDS, 3), key=KINDS.index):
        kind(content, rng)


ALL: Final = (*KINDS, several)


# -- what may not notice --


def _backend(runtime: PythonRuntime) -> HostedRuntime:
    found = runtime.core.backend
    assert isinstance(found, HostedRuntime)
    return found


def _process(runtime: PythonRuntime) -> tuple[int, str]:
    """The worker of a runtime, as the kernel sees it: its number, and when it began."""
    pid = _backend(runtime).started()._account._worker.pid  # type: ignore[attr-defined]
    return pid, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Witnesses:
    """A source, its image, a bystander, and this process."""

    def __init__(self, until: ExitStack) -> None:
        self.source, self.bystander = (until.enter_context(PythonRuntime(sandbox=SANDBOX)) for _ in range(2))
        for each in (self.source, self.bystander):
            assert each.execute(STATE).success
        self._image, _ = transfer.ImageRequest(
            _backend(self.source), _backend(self.source).started()
        ).received()
        until.callback(self._image.close)
        self._whole = self.content()
        self._processes = list(map(_process, (self.source, self.bystander)))
        self._secret = os.urandom(2**20)
        self._copy = bytes(bytearray(self._secret))
        self._open = len(opened())
        self._resident = 0

    def content(self) -> bytearray:
        memory = self._image.image.memory
        assert memory is not None
        return bytearray(os.pread(memory.fileno(), self._image.image.size, 0))

    def image(self, damage: Damage, seed: int) -> ReceivedImage:
        content = self.content()
        damage(content, random.Random(f"{damage.__name__} {seed}"))
        memory = SealedMemory.create([content])
        return ReceivedImage(self._image.state, (Content(size=len(content), count=0, memory=memory),))

    def check(self) -> None:
        """Raises AssertionError unless all is as it was."""
        assert self._processes == list(map(_process, (self.source, self.bystander)))
        for each in (self.source, self.bystander):
            assert EXPECTED == each.execute(ALIVE).stdout
        assert self._whole == self.content()
        assert self._secret == self._copy
        until(lambda: len(opened()) <= self._open)
        self._resident = self._resident or _resident()  # after the first, which warms what there is to warm
        assert _resident() < self._resident + GROWTH


@pytest.fixture(scope="module")
def witnesses() -> Iterator[Witnesses]:
    with ExitStack() as until_the_end:
        yield Witnesses(until_the_end)


def become(witnesses: Witnesses, damage: Damage, seed: int) -> str:
    """What has come of a jail that was to become a damaged image."""
    with PythonRuntime(sandbox=SANDBOX) as victim:
        supervisor = _backend(victim).started()
        image = witnesses.image(damage, seed)
        try:
            transfer.put_image(supervisor, image, draw_anew=True, patience=5)
        except CheckpointRefusedError:
            assert "42" == victim.execute("6 * 7").value  # it goes on as it was
            return "refused"
        except UnavailableError:
            assert supervisor.death is not None
            return "ended"
        finally:
            image.close()
        try:
            return "went on" if victim.execute(ALIVE, timeout=5).stdout == EXPECTED else "went wrong"
        except CenoteError:
            return "ended later"


@pytest.mark.sweep(cases=3)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("damage", ALL, ids=lambda damage: damage.__name__)
def test_damage_stays_in_the_jail(witnesses: Witnesses, damage: Damage, seed: int) -> None:
    become(witnesses, damage, seed)
    witnesses.check()


def test_an_image_without_damage_is_taken(witnesses: Witnesses) -> None:
    """So it is the damage that the others are refused for."""

    def none(_content: bytearray, _rng: random.Random) -> None:
        pass

    assert "went on" == become(witnesses, none, 0)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("damage", ALL, ids=lambda damage: damage.__name__)
def test_much_damage_stays_in_the_jail(witnesses: Witnesses, damage: Damage) -> None:
    """Of each kind, in various ways that it ends."""
    found = Counter[str]()
    for seed in range(500):
        found[become(witnesses, damage, 1000 + seed)] += 1
        witnesses.check()
    assert 500 == found.total()
    assert found["refused"] + found["ended"] + found["went wrong"] + found["ended later"], found
