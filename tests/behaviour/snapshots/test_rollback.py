"""Rolling back to stored states, and forward again."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from tests.support.snapshots.fixtures import MakeRuntime
from tests.waiting import PATIENCE

from cenote.runtime import AsyncPythonRuntime, PythonRuntime, Variable
from cenote_security.errors import NotKeptError, UnavailableError, UsageError
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.execution.results import ExecutionResult, Rollback

pytestmark = pytest.mark.usefixtures("where")


def ok(result: ExecutionResult) -> str | None:
    assert result.success, result.error
    return result.value


@pytest.mark.at("embedded", "platform", "relayed", "http")
def test_there_and_back(runtime: PythonRuntime) -> None:
    """Rolling forward undoes a rollback: the state that was left is stored too."""
    for value in range(1, 4):
        ok(runtime.execute(f"x = {value}"))
    assert Rollback(step=1) == runtime.rollback(1)
    assert "1" == ok(runtime.execute("x"))
    assert Rollback(step=3) == runtime.rollback(3)
    assert "3" == ok(runtime.execute("x"))


def test_what_snapshot_gives_can_be_gone_back_to(runtime: PythonRuntime) -> None:
    """Also when a later state has taken its label, and as the start of a branch."""
    ok(runtime.execute("x = 1"))
    first, unnamed = runtime.snapshot("here"), runtime.snapshot(None)
    ok(runtime.execute("x = 2"))
    runtime.snapshot("here")
    assert Rollback(step=1) == runtime.rollback(first) == runtime.rollback(unnamed)
    assert "1" == ok(runtime.execute("x"))
    with runtime.fork(runtime.snapshots()[1]) as branch:
        assert "1" == ok(branch.execute("x"))


@pytest.mark.at("embedded", "platform", "http")
def test_objects_are_the_very_same(runtime: PythonRuntime) -> None:
    """Generators, closures, iterators over open files, arrays and views that share their memory."""
    ok(
        runtime.execute("""
import numpy as np
open('f', 'w').write('a\\nb\\nc\\n')
g = (n * n for n in range(9)); next(g); next(g)
def counter():
    n = 0
    def count():
        nonlocal n
        n += 1
        return n
    return count
count = counter(); count()
lines = open('f'); next(lines)
a = np.arange(10.0); view = a[2:5]
""")
    )
    ok(runtime.execute("list(g), list(lines), count(), count(); a[:] = 0"))
    runtime.rollback(1)
    expected = "(4, 2, 'b\\n', 9.0, True)"
    assert expected == ok(runtime.execute("next(g), count(), next(lines), float(view.sum()), view.base is a"))


@pytest.mark.at("embedded", "http")
def test_the_place_in_a_file(runtime: PythonRuntime) -> None:
    """Two processes share a file offset; each snapshot still has its own."""
    ok(runtime.execute("open('f', 'wb').write(bytes(range(9)))\nf = open('f', 'rb', buffering=0); f.read(2)"))
    ok(runtime.execute("f.read(5)"))
    runtime.rollback(1)
    assert r"b'\x02'" == ok(runtime.execute("f.read(1)"))
    runtime.rollback(2)
    assert r"b'\x07'" == ok(runtime.execute("f.read(1)"))


LOCKS = """
import fcntl, os
f, g = (open(name, 'w') for name in ('f', 'g'))
both = os.dup(g.fileno())
def held(*files):
    told = [open(f'/proc/self/fdinfo/{file if type(file) is int else file.fileno()}').read() for file in files]
    return [sorted(line.split()[2::2][:2] for line in each.splitlines() if 'lock:' in line) for each in told]
def is_free(name):
    with open(name, 'r+') as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
"""


@pytest.mark.at("embedded", "http")
def test_locks_on_files(runtime: PythonRuntime) -> None:
    """Each state has the locks that it had; shared ones stay shared."""
    ok(runtime.execute(LOCKS))
    ok(runtime.execute("fcntl.flock(f, fcntl.LOCK_EX); fcntl.flock(g, fcntl.LOCK_SH)"))
    there = "[[['FLOCK', 'WRITE']], [['FLOCK', 'READ']], [['FLOCK', 'READ']]]"
    look = "held(f, g, both)"
    assert there == ok(runtime.execute(look))
    ok(runtime.execute("[fcntl.flock(each, fcntl.LOCK_UN) for each in (f, g)]"))
    for step, expected in ((2, there), (1, "[[], [], []]"), (2, there), (4, "[[], [], []]")):
        assert Rollback(step=step) == runtime.rollback(step)
        assert expected == ok(runtime.execute(look))
    runtime.rollback(2)
    ok(runtime.execute("os.write(both, b'abc'); fcntl.flock(both, fcntl.LOCK_UN)"))
    assert "([[], []], 3)" == ok(runtime.execute("held(g, both), os.lseek(g.fileno(), 0, os.SEEK_CUR)"))


@pytest.mark.at("embedded", "http")
def test_a_lock_goes_with_its_file(runtime: PythonRuntime) -> None:
    """Whichever stored states have that file open, locked or not."""
    ok(runtime.execute(LOCKS))
    ok(runtime.execute("fcntl.flock(f, fcntl.LOCK_EX)"))
    assert "False" == ok(runtime.execute("is_free('f')"))
    ok(runtime.execute("f.close()"))
    assert "True" == ok(runtime.execute("is_free('f')"))
    runtime.rollback(1)
    ok(runtime.execute("fcntl.flock(f, fcntl.LOCK_EX); f.close()"))
    assert "True" == ok(runtime.execute("is_free('f')"))


OF_PROCESS = """
import fcntl, os, sqlite3
f = open('f', 'w'); f.write('x'); f.flush(); fcntl.lockf(f, fcntl.LOCK_EX)
con = sqlite3.connect('db', isolation_level=None)
con.execute('CREATE TABLE t (x)'); con.execute('BEGIN IMMEDIATE'); con.execute('INSERT INTO t VALUES (1)')
def is_free(name):
    if not (child := os.fork()):
        try:
            fcntl.lockf(os.open(name, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
def now():
    return [is_free('f'), is_free('db'), len(os.listdir('/proc/self/fd'))]
usual = now()[2]
"""


def test_locks_of_the_process_stay(runtime: PythonRuntime) -> None:
    """They end when the process closes any descriptor of the file: no look at files, no copy and no client does."""
    ok(runtime.execute(OF_PROCESS))
    assert "[False, False]" == ok(runtime.execute("now()[:2]"))
    ok(runtime.execute("f.write('y'); f.flush(); con.execute('INSERT INTO t VALUES (2)').rowcount"))
    assert (b"xy", 8192) == (runtime.files.read("f"), len(runtime.files.read("db")))
    assert "[False, False]" == ok(runtime.execute("now()[:2]"))
    with runtime.fork(partial=True) as branch:
        assert "'xy'" == ok(branch.execute("open('f').read()"))
    assert "[False, False]" == ok(runtime.execute("now()[:2]"))
    crash = runtime.execute("os._exit(1)")
    assert crash.error is not None
    assert "CellCrashed" == crash.error.type
    assert "[False, False]" == ok(runtime.execute("now()[:2]"))
    assert Rollback(step=1) == runtime.rollback(1)
    assert "[False, False]" == ok(runtime.execute("now()[:2]"))
    assert "([(1,)], 'x')" == ok(
        runtime.execute("con.execute('COMMIT'); con.execute('SELECT * FROM t').fetchall(), open('f').read()")
    )


def test_no_descriptor_of_ours_stays_without_a_lock(runtime: PythonRuntime) -> None:
    """It has to stay as long as there is a lock on a file that the program can only write to."""
    ok(runtime.execute(OF_PROCESS))
    ok(runtime.execute("fcntl.lockf(f, fcntl.LOCK_UN)"))
    ok(runtime.execute("open('g', 'w').write('z')"))
    assert "[True, False, 0]" == ok(runtime.execute("[*now()[:2], now()[2] - usual]"))


@pytest.mark.slow
def test_a_lock_that_another_process_has_by_now(tmp_path: Path) -> None:
    """The file's name is reported as unusable."""
    (tmp_path / "f").write_text("")
    mounts = [Mount(source=str(tmp_path), target="/out", writable=True)]
    os.chmod(tmp_path, 0o777)
    os.chmod(tmp_path / "f", 0o666)
    with PythonRuntime(sandbox=SandboxPolicy(mounts=mounts)) as runtime:
        ok(runtime.execute("import fcntl\nf = open('/out/f', 'r+'); fcntl.flock(f, fcntl.LOCK_EX)"))
        ok(runtime.execute("fcntl.flock(f, fcntl.LOCK_UN)"))
        with (tmp_path / "f").open() as other:
            fcntl.flock(other, fcntl.LOCK_SH)
            assert Rollback(step=1, severed=("f",)) == runtime.rollback(1)


@pytest.mark.parametrize(
    "names", ["isinstance len", "hasattr setattr iter next", "getattr issubclass str", "type int"]
)
def test_a_crash_under_replaced_builtins(make_runtime: MakeRuntime, names: str) -> None:
    """A copy continues with what Cenote's code needs, whatever cells have put in their places."""
    with make_runtime() as runtime:
        code = "import builtins\nclass Broken:\n    def __new__(cls, *_): raise RuntimeError\n"
        ok(runtime.execute(code + "\n".join(f"builtins.{name} = Broken" for name in names.split())))
        ok(runtime.execute("x = 2"))
        assert not runtime.execute("import os; os._exit(1)").success
        assert "2" == ok(runtime.execute("x"))


@pytest.mark.at("embedded", "platform", "relayed", "http")
def test_labels(runtime: PythonRuntime) -> None:
    """A label stands for a step number; a label that is given again moves."""
    ok(runtime.execute("x = 1"))
    assert ("clean", 1) == ((info := runtime.snapshot("clean")).label, info.step)
    ok(runtime.execute("x = 2"))
    assert 1 == runtime.rollback("clean").step
    assert "1" == ok(runtime.execute("x"))
    runtime.snapshot("clean")
    assert [("clean", 3)] == [(info.label, info.step) for info in runtime.snapshots() if info.label]


@pytest.mark.at("embedded", "platform")
def test_a_state_may_have_several_labels(runtime: PythonRuntime) -> None:
    """As when an agent and its user label the same one. Each leads there, and is listed; up to eight of a state."""
    ok(runtime.execute("x = 1"))
    for label in ("mine", "theirs", "mine"):
        runtime.snapshot(label)
    assert ["theirs", "mine"] == [info.label for info in runtime.snapshots() if info.step == 1]
    for label in ("mine", "theirs"):
        ok(runtime.execute("x = 2"))
        assert 1 == runtime.rollback(label).step
    ok(runtime.execute("x = 2"))
    long = ["\N{GRINNING FACE}" * 98 + str(number) for number in range(10)]
    for label in long:
        runtime.snapshot(label)
    listed = runtime.snapshots()
    assert long[2:] == [info.label for info in listed if info.step == max(each.step for each in listed)]
    with pytest.raises(NotKeptError):
        runtime.rollback(long[0])
    assert 1 == runtime.rollback("mine").step


def test_a_label_stays_where_it_is(runtime: PythonRuntime) -> None:
    """Storing that state again without a label, as a rollback does before it leaves it, keeps the label."""
    ok(runtime.execute("x = 1"))
    runtime.snapshot("clean")
    ok(runtime.execute("x = 2"))
    assert [1, 2, 1] == [runtime.rollback(to).step for to in ("clean", 2, "clean")]
    assert 1 == runtime.snapshot().step == runtime.rollback("clean").step


@pytest.mark.at("embedded", "platform", "relayed", "http")
def test_what_is_not_kept(runtime: PythonRuntime) -> None:
    """Then nothing is done, and the namespace is unchanged."""
    ok(runtime.execute("x = 1"))
    with pytest.raises(NotKeptError, match="after step 7"):
        runtime.rollback(7)
    with pytest.raises(NotKeptError, match="'nowhere'"):
        runtime.rollback("nowhere")
    assert "1" == ok(runtime.execute("x"))


@pytest.mark.at("embedded", "platform", "http")
@pytest.mark.parametrize("target", [-1, True, "", 1.5])
def test_what_is_no_target(runtime: PythonRuntime, target: int) -> None:
    with pytest.raises(UsageError):
        runtime.rollback(target)


def test_the_beginning(runtime: PythonRuntime) -> None:
    """Step 0 has the injected values, before any cell."""
    runtime.inject(Variable("a", [1]))
    ok(runtime.execute("a.append(2); b = 1"))
    runtime.rollback(0)
    assert "([1], False)" == ok(runtime.execute("a, 'b' in globals()"))


@pytest.mark.at("embedded", "platform")
def test_an_injection_is_part_of_the_state(runtime: PythonRuntime) -> None:
    """Changes after the last cell survive a crash of the next one."""
    ok(runtime.execute("x = 1"))
    runtime.inject(Variable("late", 7))
    assert "rolled_back" == runtime.execute("late = 8; import os; os._exit(1)").state
    assert "(1, 7)" == ok(runtime.execute("x, late"))


@pytest.mark.at("embedded", "platform")
def test_what_cannot_come_along_is_named(runtime: PythonRuntime) -> None:
    """Names of sockets and processes exist, and their values are unusable."""
    ok(
        runtime.execute(
            "import socket, subprocess\na, b = socket.socketpair(); p = subprocess.Popen(['sleep', '99'])"
        )
    )
    ok(runtime.execute("x = 1"))
    assert {"a", "b", "p"} == set(runtime.rollback(1).severed)
    result = runtime.execute("a.send(b'x')")
    assert "BrokenPipeError" == (result.error.type if result.error else "")
    ok(runtime.execute("a, b = socket.socketpair(); a.send(b'x')"))


def test_what_is_in_a_container_or_is_a_number_is_named_too(runtime: PythonRuntime) -> None:
    """Pipe ends are numbers; they and a list of processes are unusable too."""
    ok(runtime.execute("import os, socket, subprocess\nr, w = os.pipe(); other = -1"))
    ok(runtime.execute("many = [subprocess.Popen(['true'])]; table = {'line': socket.socket()}"))
    ok(runtime.execute("x = 1"))
    assert {"r", "w", "many", "table"} == set(runtime.rollback(2).severed)


SHARED = """
import mmap, multiprocessing, os
nobody = mmap.mmap(-1, 4096); view = memoryview(nobody); closed = mmap.mmap(-1, 4096); closed.close()
number = os.memfd_create("m"); os.ftruncate(number, 8192); file = mmap.mmap(number, 8192)
open("named", "wb").write(bytes(12288)); own = open("named", "r+b"); named = mmap.mmap(own.fileno(), 12288)
x = 5
"""


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["strict", "landlock"])
def test_memory_that_all_copies_share(make_runtime: MakeRuntime, isolation: str) -> None:
    """It is named and has no other effect, whichever copy continues, and where none can read its own maps."""
    runtime = make_runtime(isolation=isolation)
    ok(runtime.execute(SHARED))
    for _ in range(2):
        result = runtime.execute("x = 6; import os; os._exit(1)")
        assert ("rolled_back", "exit") == (result.state, result.error.reason)  # type: ignore[union-attr]
        for name in ("nobody", "view", "number", "file"):
            assert f"`{name}`" in str(result.error)
        for name in ("closed", "named", "own", "x"):
            assert f"`{name}`" not in str(result.error)
        assert "5" == ok(runtime.execute("x"))
        ok(runtime.execute("y = 1"))
    severed = runtime.rollback(1).severed
    assert {"nobody", "view", "number", "file"} <= set(severed)
    assert {"closed", "named", "own", "x"}.isdisjoint(severed)


def test_a_long_list_is_not_gone_through(runtime: PythonRuntime) -> None:
    """A rollback would have to wait for that, and its memory would be copied. It has the numbers of both ends."""
    ok(runtime.execute("import os\nr, w = os.pipe(); many = list(range(1_000_000)); few = [w]"))
    ok(runtime.execute("x = 1"))
    assert {"r", "w", "few"} == set(runtime.rollback(1).severed)


@pytest.mark.at("embedded", "platform", "http")
def test_a_pipe_ends_though_a_snapshot_had_it(runtime: PythonRuntime) -> None:
    """A frozen copy holds no pipe end: a reader would otherwise never see the end of the stream."""
    ok(runtime.execute("import subprocess as s\np = s.Popen(['cat'], stdin=s.PIPE, stdout=s.PIPE)"))
    ok(runtime.execute("p.stdin.write(b'hello')"))
    assert "b'hello'" == ok(runtime.execute("p.communicate()[0]", timeout=PATIENCE))


def test_a_cell_does_not_meet_snapshots(runtime: PythonRuntime) -> None:
    """Snapshots are not children of its process."""
    for _ in range(4):
        ok(runtime.execute("x = 1"))
    code = "import os\ntry: os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError: r = 'none'\nr"
    assert "'none'" == ok(runtime.execute(code))


def test_step_numbers_go_on(runtime: PythonRuntime) -> None:
    """A step number is never reused; a crash after a rollback restores the state of the rollback."""
    for value in range(1, 4):
        ok(runtime.execute(f"x = {value}"))
    runtime.rollback(1)
    result = runtime.execute("x = 9; import os; os._exit(1)")
    assert (4, 1) == (result.step, result.back_at)
    assert "1" == ok(runtime.execute("x"))


@pytest.mark.at("embedded", "platform", "http")
def test_thinning(runtime: PythonRuntime) -> None:
    """The number of snapshots is bounded; the beginning, labelled ones and the newest are among them."""
    ok(runtime.execute("x = 1"))
    runtime.snapshot("mine")
    for _ in range(12):
        ok(runtime.execute("x += 1"))
    kept = runtime.snapshots()
    assert len(kept) <= 8
    assert {0, 1, 12} <= {info.step for info in kept}
    assert "1" == ok(runtime.execute("x")) if runtime.rollback("mine").step == 1 else False


def test_snapshots_can_be_off(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(snapshots="none")
    ok(runtime.execute("x = 1"))
    assert () == runtime.snapshots()
    with pytest.raises(UnavailableError, match="keeps no snapshots"):
        runtime.snapshot("a")
    with pytest.raises(NotKeptError):
        runtime.rollback(0)
    assert "1" == ok(runtime.execute("x"))


@pytest.mark.at("embedded", "platform")
def test_only_the_owner_rolls_back(runtime: PythonRuntime) -> None:
    """Others have access to the runtime too."""
    other = runtime.attach("ann")
    ok(other.execute("x = 1"))
    assert 1 == other.snapshot().step
    with pytest.raises(UsageError, match="only the owner"):
        other.rollback(0)


@pytest.mark.at("embedded", "platform")
async def test_the_async_face() -> None:
    """The same calls, awaited."""
    async with AsyncPythonRuntime() as runtime:
        await runtime.execute("x = 1")
        assert "a" == (await runtime.snapshot("a")).label
        await runtime.execute("x = 2")
        assert 1 == (await runtime.rollback("a")).step
        assert "1" == (await runtime.execute("x")).value
        assert 1 in {info.step for info in await runtime.snapshots()}
