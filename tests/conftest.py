"""Rules for the whole suite: tests that run on request, no network except loopback, nothing left behind."""

from __future__ import annotations

import gc
import ipaddress
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from tests.databases import database, db, server
from tests.places import _by_http, _direct, _relayed, where
from tests.variants import is_possible
from tests.variants import parametrize as pytest_generate_tests
from tests.waiting import PATIENCE

__all__ = ["_by_http", "_direct", "_relayed", "database", "db", "pytest_generate_tests", "server", "where"]

# How long an example takes depends more on the machine than on the code.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=50)
hypothesis.settings.register_profile("long", deadline=None, max_examples=200)
hypothesis.settings.load_profile("untimed")

ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
ROOT = Path(__file__).resolve().parent.parent

# -- options ----------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what takes long: see tests/tiers.py")
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--again", action="store_true", help="run the few tests that failed once more, alone")
    parser.addoption("--grace", type=float, default=60.0, help="seconds that a last process may take to end")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if addressed := [item.nodeid for item in items if ADDRESS.search(item.nodeid)]:
        raise pytest.UsageError(
            "processes of a run cannot agree on ids with addresses: " + ", ".join(addressed)
        )
    items[:] = [item for item in items if is_possible(item)]
    if config.getoption("--quick"):
        from tests.tiers import quick

        kept = quick(items)
        chosen = {*kept}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept
    if hasattr(config, "workerinput"):
        _longest_first(items)
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with --long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests are collected and stay: they are excluded from garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# -- fixtures ---------------------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisors of this process give an interrupted cell little time instead of two seconds."""
    from cenote_worker.supervisor.running_request import CellClock

    monkeypatch.setattr("cenote_worker.supervisor.running_request.CellClock", partial(CellClock, grace=0.3))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisors of this process give an interrupted cell the time that a busy machine may take to interrupt it."""
    from cenote_worker.supervisor.running_request import CellClock

    monkeypatch.setattr(
        "cenote_worker.supervisor.running_request.CellClock", partial(CellClock, grace=PATIENCE)
    )


# -- processes of a run -----------------------------------------------------------------------------------
# A process runs whole files, so that shared fixtures are made once; what is dearer to make stays in one process. Not
# by `--dist=loadgroup`: pytest-xdist 3.8 writes its marks into ids, which pytest 9.2 no longer has read.

TOGETHER = {
    "tests/survival/cluster/": "a standing platform, of which two disturb each other",
    "tests/behaviour/gvisor/": "a started kernel",
    "tests/behaviour/models/": "an imported LiteLLM",
    "tests/behaviour/postgresql/": "a server of PostgreSQL, for the variants of other tests too",
}


def _unit(nodeid: str) -> str:
    """Tests with the same unit run in one process."""
    path, _, variant = nodeid.partition("[")
    if "postgresql" in variant.strip("]").split("-"):
        return "tests/behaviour/postgresql/"
    return next(filter(path.startswith, TOGETHER), path.partition("::")[0])


def _longest_first(items: list[pytest.Item]) -> None:
    """Units with most tests that take long come first: the last process to end should not have one of these alone."""
    units = {item: _unit(item.nodeid) for item in items}
    slow = Counter(units[each] for each in items if any(map(each.get_closest_marker, ("slow", "sweep"))))
    many = Counter(units.values())
    items.sort(key=lambda item: (-slow[units[item]], -many[units[item]]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    config.option.loadscopereorder = False  # by numbers of tests alone: see `_longest_first`
    return Scheduling(config, log)


# -- network ----------------------------------------------------------------------------------------------


def _forbid_network(event: str, args: tuple[object, ...]) -> None:
    if event == "socket.connect" and isinstance(args[1], tuple) and not _is_loopback(args[1][0]):
        raise AssertionError(f"a test connects to {args[1]!r}; only loopback is allowed")
    if event == "socket.getaddrinfo" and not _is_loopback(args[0]):
        raise AssertionError(f"a test looks up {args[0]!r}; only loopback is allowed")


def _is_loopback(host: object) -> bool:
    text = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return text == "localhost"


# -- leftovers --------------------------------------------------------------------------------------------
# Every process of a run carries a mark that survives an exec, an emptied environment and a new parent: an odd
# soft limit on POSIX message queues, which nothing here uses. A zygote that outlives the run is found by it.


def _mark_processes() -> int:
    hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]
    mark = 100_000 + os.getpid() % 700_000
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (mark, hard))
    return mark


def _fields(pid: int) -> tuple[str, int] | None:
    """State letter and parent of a process, None when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def _carries(pid: int, mark: int) -> bool:
    try:
        limits = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return False
    lines = [line for line in limits.splitlines() if line.startswith("Max msgqueue size")]
    return bool(lines) and lines[0].split()[3] == str(mark)


def _descends_from_us(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        fields = _fields(pid)
        pid = fields[1] if fields else 0
    return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "(ended meanwhile)"


def _orphans(mark: int) -> dict[int, str]:
    """Live processes of this run whose parents are gone, with their command lines."""
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        fields = _fields(pid)
        if fields and fields[0] not in "ZX" and _carries(pid, mark) and not _descends_from_us(pid):
            found[pid] = _command(pid)
    return found


def _visible_entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith((".", "__pycache__"))}


HOMES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")
"""Where a platform stores its user's token and its state: nowhere for tests. A token that a test leaves in the
usual place would be used by other tests in the same process of the run."""


class Leftovers:
    """What the run may not leave: processes, files in its temporary folder, files in the source tree."""

    def __init__(self) -> None:
        self.mark = _mark_processes()
        self.folder = Path(tempfile.mkdtemp(prefix="cenote-tests-"))
        self.beside_sources = _visible_entries(ROOT)
        self.homes = {name: self.folder / f".{name}" for name in HOMES}
        self.outside = {name: os.environ.get(name) for name in ("TMPDIR", *HOMES)}
        tempfile.tempdir = None
        os.environ["TMPDIR"] = str(self.folder)
        os.environ.update({name: str(home) for name, home in self.homes.items()})

    def describe(self, grace: float) -> list[str]:
        """What still exists after this many seconds, since ending processes may have files to remove."""
        deadline = time.monotonic() + grace
        while (lines := self._found()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return lines

    def _found(self) -> list[str]:
        lines = [f"process {pid} is still alive: {line}" for pid, line in _orphans(self.mark).items()]
        files = {name for name in _visible_entries(self.folder) if not name.startswith("pytest-of-")}
        lines += [f"left in the temporary folder: {name}" for name in sorted(files)]
        lines += [
            f"a test has set no {name} of its own, and left {found}"
            for name, home in self.homes.items()
            for found in sorted((home / "cenote").glob("**/*"))
        ]
        return lines + [
            f"left beside the sources: {name}"
            for name in sorted(_visible_entries(ROOT) - self.beside_sources)
        ]

    def remove(self) -> None:
        for name, former in self.outside.items():
            os.environ.pop(name, None)
            os.environ.update({name: former} if former is not None else {})
        shutil.rmtree(self.folder, ignore_errors=True)


LEFTOVERS = pytest.StashKey[Leftovers]()
FOUND = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    # As in a shell's background, or under `nohup`; children would inherit it.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    sys.addaudithook(_forbid_network)
    sys.dont_write_bytecode = False  # a file of tests takes longer to compile than to import
    if config.getoption("--long"):
        hypothesis.settings.load_profile("long")
    if not hasattr(config, "workerinput"):  # workers of xdist inherit the mark, the folder and the hash seed
        # Sets print in hash order, and so do ids that show a set: all workers need the same order.
        os.environ.setdefault("PYTHONHASHSEED", str(random.randrange(1, 2**32)))
        # Hundreds of processes import the same modules: each would compile them all.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        config.stash[LEFTOVERS] = Leftovers()
        if config.getoption("--again"):
            from tests.unstable import Unstable

            config.pluginmanager.register(Unstable())
        if config.getoption("--quick"):
            from tests.tiers import LongTests

            config.pluginmanager.register(LongTests())


def pytest_report_header() -> str:
    return f"PYTHONHASHSEED={os.environ['PYTHONHASHSEED']}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    leftovers = session.config.stash.get(LEFTOVERS, None)
    if leftovers is None:
        return
    session.config.stash[FOUND] = found = leftovers.describe(session.config.getoption("--grace"))
    leftovers.remove()
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if found := config.stash.get(FOUND, []):
        terminalreporter.section("the run left something behind, so it failed", red=True)
        terminalreporter.write("\n".join(found) + "\n")
