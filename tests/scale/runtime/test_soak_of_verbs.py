"""All methods of a runtime, repeatedly: descriptors, threads and memory of the client do not grow.

A few rounds in the suite, an hour of them with --long; CENOTE_SOAK_SECONDS sets another time.
"""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.support.descriptors import opened
from tests.support.remote.small_platform import TOKEN, SmallPlatform
from tests.waiting import until

from cenote import Function, PythonRuntime, SandboxPolicy, Type, Variable
from cenote.harness import Patch
from cenote_security.errors import NameExistsError, NotKeptError
from cenote_worker.supervisor.reactor import Timer

LONG_SECONDS = float(os.environ.get("CENOTE_SOAK_SECONDS", "3600"))

POLICY = SandboxPolicy(preload=("numpy",), memory="300MiB", cell_timeout=30)

WARM_ROUNDS = 2
ROUNDS = 1
"""After the first. A method that leaks descriptors each time shows it after one."""

SPARE = 300
"""More objects than that are a leak; fewer may be caches of libraries. The record of one cell alone has fifty."""

LARGE = 200_000
"""Bytes: values of this size travel in separate memory, with a descriptor."""


class Point:
    """A type of the client's."""

    def __init__(self, x: int) -> None:
        self.x = x


class Ledger:
    """An object that stays in the client."""

    def __init__(self) -> None:
        self.paid = 0

    def pay(self, amount: int) -> int:
        self.paid += amount
        return self.paid


Verb = Callable[[PythonRuntime], None]


def cells(runtime: PythonRuntime) -> None:
    heard: list[str] = []
    assert "3" == runtime.execute("print('text')\n1 + 2", on_output=lambda _, text: heard.append(text)).value
    assert ["text\n"] == heard
    assert not runtime.execute("1 / 0").success
    assert "rolled_back" == runtime.execute("n = 1; 1 / 0", on_error="rollback").state
    assert runtime.execute("while True: pass", timeout=0.05).error is not None
    assert 100_000 < len(runtime.execute("print('x' * 100_001)").stdout)


def crashes(runtime: PythonRuntime) -> None:
    assert "rolled_back" == runtime.execute("import os; os._exit(3)").state


def values(runtime: PythonRuntime) -> None:
    large = np.ones(LARGE, np.uint8)
    runtime.inject(Variable("large", large), Type(Point))
    with pytest.raises(NameExistsError):
        runtime.inject(Variable("large", large))
    runtime.update_variable("large", 2 * large)
    assert 2 * LARGE == runtime.retrieve("large").sum()
    assert runtime.execute("p = Point(3)").success
    assert 3 == runtime.retrieve("p", trusted=True).x
    assert {"large", "p"} <= {info.name for info in runtime.describe()}
    assert not runtime.execute("large()").success
    for name in ("large", "p", "Point"):
        runtime.delete(name)


def values_in_turns(runtime: PythonRuntime) -> None:
    for number in range(8):
        for name in ("one", f"number_{number}"):
            runtime.inject(Variable(name, bytes(LARGE)))
            runtime.delete(name)


def references(runtime: PythonRuntime) -> None:
    assert runtime.execute(f"shared = bytes({LARGE})").success
    reference = runtime.share("shared")
    runtime.inject(Variable("again", reference))
    runtime.update_variable("again", reference)
    assert f"{LARGE}" == runtime.execute("len(again)").value
    reference.release()
    for name in ("again", "shared"):
        runtime.delete(name)


def host_calls(runtime: PythonRuntime) -> None:
    ledger = Ledger()
    runtime.inject(Variable("ledger", ledger, host=True), Function(len, name="size", host=True))
    assert f"(5, {LARGE})" == runtime.execute(f"ledger.pay(5), size(bytes({LARGE}))").value
    assert not runtime.execute("size(5)").success
    for name in ("ledger", "size"):
        runtime.delete(name)


def files(runtime: PythonRuntime) -> None:
    runtime.files.write("folder/file", bytes(LARGE))
    assert LARGE == len(runtime.files.read("folder/file"))
    assert "folder" in [each.name for each in runtime.files.list()]
    runtime.files.delete("folder/file")


def states(runtime: PythonRuntime) -> None:
    assert runtime.execute("s = 1").success
    kept = runtime.snapshot("kept")
    assert runtime.execute("s = 2").success
    runtime.rollback(kept.step)
    assert "1" == runtime.execute("s").value
    with pytest.raises(NotKeptError):
        runtime.rollback("no such label")
    assert runtime.snapshots()
    assert runtime.status().memory
    runtime.reset()
    assert "False" == runtime.execute("'s' in globals()").value


def patches(runtime: PythonRuntime) -> None:
    step = runtime.execute("a = 1").step
    assert runtime.execute("b = a + 1").success
    plan = runtime.state.plan(Patch.replace_step(step, "a = 2", reason="soak"))
    assert "applied" == runtime.state.apply(plan).status
    assert "3" == runtime.execute("b").value
    assert runtime.state.at(step).code


def authors(runtime: PythonRuntime) -> None:
    for scope in ("shared", "private"):
        with runtime.attach("ann", scope=scope) as ann:
            assert ann.execute("mine = 1").success
            assert 1 == ann.retrieve("mine")
            ann.inject(Variable("theirs", bytes(LARGE)))
            ann.delete("theirs")


def forks(runtime: PythonRuntime) -> None:
    assert runtime.execute("shared_by_all = 1").success
    with runtime.fork() as branch:
        assert branch.execute("branched = shared_by_all + 1").success
        runtime.merge(branch, ["branched"])
    assert "2" == runtime.execute("branched").value


ANYWHERE: tuple[Verb, ...] = (
    cells,
    crashes,
    values,
    values_in_turns,
    references,
    host_calls,
    files,
    patches,
    authors,
    states,
)
HERE: tuple[Verb, ...] = (*ANYWHERE, forks)


Make = Callable[[], PythonRuntime]


@contextmanager
def embedded(folder: Path) -> Iterator[Make]:
    """Makes runtimes of this process; every second one is durable, with a record."""
    numbers = itertools.count()

    def make() -> PythonRuntime:
        number = next(numbers)
        kept = {"store": folder, "name": f"r{number}", "durable": True, "history": str(folder / "h.sqlite")}
        return PythonRuntime(sandbox=POLICY, **(kept if number % 2 else {}))

    yield make


@contextmanager
def remote(_folder: Path) -> Iterator[Make]:
    """Makes runtimes of a platform, which is in this process, too."""
    with closing(SmallPlatform().start()) as platform:
        yield lambda: PythonRuntime(sandbox=POLICY, address=platform.address, token=TOKEN)


def all_verbs(runtime: PythonRuntime, verbs: tuple[Verb, ...]) -> None:
    for verb in verbs:
        verb(runtime)


def runtimes(make: Make, verbs: tuple[Verb, ...]) -> None:
    """Two that are made, used and closed: one of each kind."""
    for _ in range(2):
        with make() as runtime:
            all_verbs(runtime, verbs)


def objects() -> Counter[str]:
    """Objects that the collector knows, by type."""
    gc.collect()
    return Counter(map(name_of, map(type, gc.get_objects())))


def name_of(kind: type) -> str:
    """Asked of `type` itself: a class of another test may raise an error."""
    return ".".join(str(vars(type)[each].__get__(kind)) for each in ("__module__", "__qualname__"))


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


POOLS = ("cenote-host_", "cenote-serving_", "ThreadPoolExecutor-")
"""Names of threads of pools: a busy moment adds one, up to a set number."""


def threads() -> Counter[str]:
    """Threads by the beginnings of their names, except those of pools."""
    names = (each.name.rstrip("0123456789") for each in threading.enumerate())
    return Counter(name for name in names if not name.startswith(POOLS))


CANCELLED = f"{Timer.__module__}.{Timer.__qualname__}"
"""Up to FEW_TIMERS of the cancelled ones wait until their time has come."""


class Levels:
    """Levels of this process when this was made."""

    def __init__(self) -> None:
        self.objects = objects()
        self.resident = resident()
        self.descriptors = Counter(map(kind_of, opened()))
        self.threads = threads()

    def check(self, *, memory: bool = True) -> None:
        """Fails unless they are no higher now, or soon. memory: a recorded runtime's grows with its steps."""
        try:
            until(
                lambda: (
                    len(opened()) <= self.descriptors.total() and threads().total() <= self.threads.total()
                )
            )
        except AssertionError:
            descriptors = Counter(map(kind_of, opened())) - self.descriptors
            raise AssertionError(f"more than there were: {descriptors}, {threads() - self.threads}") from None
        if memory:
            try:
                until(lambda: self.more().total() <= SPARE)
            except AssertionError:
                raise AssertionError(f"objects more than there were: {self.more().most_common(20)}") from None

    def more(self) -> Counter[str]:
        """Objects that were added since; negative for removed ones."""
        now = objects()
        now.subtract(self.objects)
        del now[CANCELLED]
        return now


def kind_of(link: str) -> str:
    return link.partition(":")[0]


FACES = pytest.mark.parametrize(
    ("face", "verbs"), [(embedded, HERE), (remote, ANYWHERE)], ids=["here", "platform"]
)


@pytest.mark.slow
@FACES
def test_nothing_rises(
    face: Callable[[Path], AbstractContextManager[Make]], verbs: tuple[Verb, ...], tmp_path: Path
) -> None:
    """Neither in a long-lived runtime, nor with each that is made and closed."""
    with face(tmp_path) as make:
        with make() as runtime:
            all_verbs(runtime, verbs)
            levels = Levels()
            for _ in range(ROUNDS):
                all_verbs(runtime, verbs)
            levels.check(memory=False)
        runtimes(make, verbs)
        levels = Levels()
        runtimes(make, verbs)
        levels.check()


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 1200)
@FACES
def test_nothing_rises_in_a_long_time(
    face: Callable[[Path], AbstractContextManager[Make]], verbs: tuple[Verb, ...], tmp_path: Path
) -> None:
    """Half of the time each. The first and the last rounds are reported."""
    ends = time.monotonic() + LONG_SECONDS / 2
    with face(tmp_path) as make, make() as stays:
        for _ in range(WARM_ROUNDS):
            all_verbs(stays, verbs)
            runtimes(make, verbs)
        stays_at = Levels()
        for rounds in itertools.count(1):  # noqa: B007
            runtimes(make, verbs)
            if time.monotonic() > ends:
                break
        stays_at.check()
        assert resident() - stays_at.resident < 32 * 2**20
        for _ in range(min(rounds, 200)):
            all_verbs(stays, verbs)
        stays_at.check(memory=False)
        print(
            f"{rounds} rounds, {(resident() - stays_at.resident) / 2**20:.1f} MiB more, {stays_at.descriptors}"
        )
