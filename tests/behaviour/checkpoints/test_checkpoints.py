"""Runtimes in real jails: what is stored of them, what is restored, and what is reported of the rest."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cenote.runtime import (
    AsyncPythonRuntime,
    CheckpointStore,
    Function,
    PythonRuntime,
    Type,
    Variable,
    foretold,
    verify,
)
from cenote_security.errors import EntryExistsError, UnknownEntryError, UsageError
from cenote_security.policy import Mount, SandboxPolicy
from cenote_security.rules import SecurityChecker, default_rules
from cenote_worker.checkpoints.errors import (
    CheckpointDamagedError,
    CheckpointRefusedError,
    IncompleteRestoreError,
    NotDurableError,
    StoreBusyError,
)
from cenote_worker.checkpoints.local_folder import LocalDraft
from cenote_worker.history import store_writer
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state import transfer
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.transport.chunks import CHUNK

Make = Callable[..., PythonRuntime]


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def restored(make_runtime: Make, folder: Path, *args: object, **arguments: object) -> PythonRuntime:
    return make_runtime(PythonRuntime.restore, folder, "r", *args, **arguments)


def kill(runtime: PythonRuntime) -> None:
    """Ends the whole jail, as another process may."""
    backend = runtime.core.backend
    assert isinstance(backend, HostedRuntime)
    assert backend.supervisor is not None
    backend.supervisor.end(JailExit(reason="killed"))
    while runtime.core.running:
        time.sleep(0.001)


def value(runtime: PythonRuntime, expression: str) -> str | None:
    result = runtime.execute(expression)
    assert result.error is None, result.error
    return result.value


# -- what is restored -------------------------------------------------------------------------------------


def test_everything_but_the_unstorable_comes_back(make_runtime: Make, folder: Path) -> None:
    """Variables, files, links, environment, directory, random numbers, and the count of steps."""
    runtime = make_runtime(store=folder, name="r")
    value(
        runtime,
        "import os, random, numpy as np\n"
        "os.makedirs('sub/deep'); open('sub/deep/f.txt', 'w').write('text' * 50_000)\n"
        "os.symlink('deep/f.txt', 'sub/l'); os.link('sub/deep/f.txt', 'also')\n"
        "os.chmod('sub/deep/f.txt', 0o640); os.environ['MODE'] = 'x'; os.chdir('sub')\n"
        "random.seed(1); np.random.seed(2); a = np.arange(100_000.); b = a[5:]; a.flags.writeable = True",
    )
    value(runtime, "from __future__ import annotations")
    runtime.checkpoint()
    expected = value(runtime, "random.random(), np.random.random()")
    runtime.close()
    again = restored(make_runtime, folder)
    assert expected == value(again, "random.random(), np.random.random()")
    assert "('sub', 'x', 200000, '0o640', True, True)" == value(
        again,
        "os.path.basename(os.getcwd()), os.environ['MODE'], len(open('l').read()), "
        "oct(os.stat('deep/f.txt').st_mode & 0o777), np.shares_memory(a, b), os.path.samefile('l', '../also')",
    )
    assert "{'x': 'int'}" == value(again, "def f(x: int): pass\nf.__annotations__")
    assert 6 == again.execute("").step


@pytest.mark.slow
def test_a_state_of_any_size_is_stored_and_given_to_branches(make_runtime: Make, folder: Path) -> None:
    """Its description is larger than a packet: names and files by the thousand."""
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "for i in range(3_000): globals()[f'name_{i}'] = i; open(f'file_{i}', 'w').close()")
    runtime.checkpoint()
    branch = runtime.fork()
    with branch:
        assert "2999" == value(branch, "name_2999")
    runtime.close()
    again = restored(make_runtime, folder)
    assert "(2999, 3000)" == value(again, "import os; name_2999, len(os.listdir())")


def test_what_a_jail_only_shows_among_its_temporary_files_is_not_stored(
    make_runtime: Make, folder: Path, tmp_path: Path
) -> None:
    """Such as a Python environment that lies below `/tmp`."""
    tmp_path.chmod(0o755)
    (tmp_path / "large").write_bytes(os.urandom(2**20))
    sandbox = SandboxPolicy(preload=(), mounts=[Mount(source=str(tmp_path), target="/tmp/shown")])
    runtime = make_runtime(store=folder, name="r", sandbox=sandbox)
    if runtime.isolation != "strict":
        pytest.skip("only a root of its own has mounts elsewhere")
    value(runtime, "import os; assert os.path.exists('/tmp/shown/large'); open('/tmp/own', 'w').write('own')")
    assert runtime.checkpoint().stored < 2**20
    runtime.close()
    again = restored(make_runtime, folder)
    assert "(True, False)" == value(
        again, "import os; os.path.exists('/tmp/own'), os.path.exists('/tmp/shown/large')"
    )


def test_versions_of_large_arrays_come_back(make_runtime: Make, folder: Path) -> None:
    """A restored value has its former version, in whichever way that is known, and another once it is written to."""
    runtime = make_runtime(store=folder, name="r")
    value(
        runtime, "import numpy as np; a = np.arange(300_000.); f = np.ones((500, 400), order='F'); v = a[1:]"
    )
    runtime.checkpoint()
    cells = "n = len(a) + len(f) + len(v)", "a[7] = 7.5; f[0] = 2"
    expected = [runtime.execute(cell).trace for cell in cells]
    runtime.close()
    again = restored(make_runtime, folder)
    read, written = [again.execute(cell).trace for cell in cells]
    assert expected == [read, written]
    assert read is not None
    assert written is not None
    assert {"name:a", "name:f"} <= read.reads.keys() & written.writes.keys()


def test_names_are_those_that_were_there(make_runtime: Make, folder: Path) -> None:
    """In their order, no others: not the injected name that was deleted since."""
    runtime = make_runtime(store=folder, name="r", variables=[Variable("data", 1), Variable("kept", 2)])
    value(runtime, "z = 1; a = 2\ndel data")
    runtime.hibernate()
    assert "['kept', 'z', 'a']" == value(runtime, "[n for n in globals() if n[0] != '_']")


def test_what_the_client_has_is_given_again(make_runtime: Make, folder: Path) -> None:
    """Calls reach the present host functions; a restore without them does not begin."""
    runtime = make_runtime(store=folder, name="r", functions=[Function(len, host=True)])
    value(runtime, "use = {'f': len}\ndef g(): return len([1])")
    runtime.checkpoint()
    runtime.close()
    with pytest.raises(IncompleteRestoreError, match="len: a function or object of the client"):
        restored(make_runtime, folder)

    def len_(items: list[int]) -> int:
        return -1

    len_.__name__ = "len"
    again = restored(make_runtime, folder, functions=[Function(len_, host=True)])
    assert "(-1, -1)" == value(again, "use['f']([]), g()")


def test_types_are_known_again(make_runtime: Make, folder: Path) -> None:
    """Instances of an injected class are retrieved from a restored runtime as before."""
    runtime = make_runtime(store=folder, name="r", types=[Type(Point)])
    value(runtime, "p = Point(3)")
    runtime.checkpoint()
    runtime.close()
    again = restored(make_runtime, folder, types=[Type(Point)])
    point = again.retrieve("p")
    assert (Point, 3) == (type(point), point.x)
    assert "True" == value(again, "type(p) is Point")


def test_what_is_given_newly_is_there_too(make_runtime: Make, folder: Path) -> None:
    """In addition to the stored values, until the next checkpoint has both; a stored name has its stored value."""
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "a = 1")
    runtime.checkpoint()
    runtime.close()
    again = restored(make_runtime, folder, variables=[Variable("a", 2), Variable("b", 3)])
    assert "(1, 3)" == value(again, "a, b")
    again.hibernate()
    assert "(1, 3)" == value(again, "a, b")


def test_an_older_state_can_be_had(make_runtime: Make, folder: Path) -> None:
    """By number or label; later checkpoints continue the numbers."""
    runtime = make_runtime(store=folder, name="r")
    for number in (1, 2, 3):
        value(runtime, f"x = {number}")
        runtime.checkpoint(f"x{number}")
    runtime.close()
    again = restored(make_runtime, folder, "x1")
    assert "1" == value(again, "x")
    assert 4 == again.checkpoint().number
    again.close()
    assert [4, 3, 2, 1] == [info.number for info in CheckpointStore(folder).checkpoints("r")]
    assert "2" == value(restored(make_runtime, folder, 2), "x")


# -- what is not restored ---------------------------------------------------------------------------------


def test_what_will_be_missing_is_said_before(make_runtime: Make, folder: Path) -> None:
    """Each with the reason and the step that made it. A partial restore begins without them, on request.

    Where no image of the process is there.
    """
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "a = 1")
    value(runtime, "import time; g = (time.time() for i in range(3))")
    runtime.checkpoint()
    runtime.close()
    CheckpointStore(folder).folder("r").images.delete(1)  # type: ignore[union-attr]
    expected = foretold(folder, "r")
    assert (("a", "time"), False) == (expected.exact, expected.complete)
    assert [("g", 2)] == [(thing.name, thing.step) for thing in expected.unkept]
    with pytest.raises(
        IncompleteRestoreError, match=r"g: .*generator.*made again: .*the time; step 2 made it"
    ):
        restored(make_runtime, folder)
    again = restored(make_runtime, folder, partial=True)
    assert "('a', False)" == value(again, "'a', 'g' in globals()")


def test_a_runtime_that_cannot_be_stored_whole_does_not_sleep(make_runtime: Make, folder: Path) -> None:
    """Hibernation would lose something: the jail continues instead, with everything."""
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "import threading, time; lock = threading.Lock(); now = time.time()")
    with pytest.raises(IncompleteRestoreError, match="lock"):
        runtime.hibernate()
    assert "False" == value(runtime, "lock.locked()")


def test_a_damaged_checkpoint_is_refused_before_anything_starts(make_runtime: Make, folder: Path) -> None:
    """With another checkpoint that can be restored; that one works."""
    runtime = make_runtime(store=folder, name="r")
    for content in "ab":
        value(runtime, f"x = '{content}' * 100_000")
        runtime.checkpoint()
    runtime.close()
    path = folder / "r" / "000000000002.checkpoint"
    path.write_bytes(b"\0" * 10 + path.read_bytes()[10:])
    with pytest.raises(CheckpointDamagedError) as caught:
        restored(make_runtime, folder)
    assert (1,) == caught.value.restorable
    verify(CheckpointStore(folder), "r", 1)
    assert "'a'" == value(restored(make_runtime, folder, 1), "x[0]")


def test_wrong_uses_are_refused(make_runtime: Make, folder: Path) -> None:
    """Each with a message, before a jail starts."""
    with pytest.raises(UsageError, match="name"):
        make_runtime(store=folder)
    with pytest.raises(UsageError, match="store"):
        make_runtime(durable=True)
    with pytest.raises(UsageError, match="stores nothing"):
        make_runtime().checkpoint()
    with pytest.raises(UnknownEntryError):
        restored(make_runtime, folder)
    runtime = make_runtime(store=folder, name="r")
    with pytest.raises(StoreBusyError):
        make_runtime(store=folder, name="r")
    runtime.checkpoint()
    runtime.close()
    with pytest.raises(EntryExistsError):
        make_runtime(store=folder, name="r")


def test_a_script_that_is_started_again_goes_on(make_runtime: Make, folder: Path) -> None:
    """One line opens the runtime of a name, or makes it; damaged state is an error, and not replaced."""
    answers = []

    def start() -> PythonRuntime:
        given = [Variable("n", 0)], [Function(lambda: answers.append(len(answers)), name="told", host=True)]
        return make_runtime(PythonRuntime.open, folder, "r", variables=given[0], functions=given[1])

    for run in (1, 2):
        with start() as runtime:
            assert (f"{run}", "r") == (value(runtime, "n += 1; told(); n"), runtime.name)
    assert [0, 1] == answers
    with start(), pytest.raises(StoreBusyError):
        start()
    for file in (folder / "r").glob("*.checkpoint"):
        file.write_bytes(b"?" * 1000)
    with pytest.raises(CheckpointDamagedError):
        start()


async def test_opening_while_others_work(folder: Path) -> None:
    """As above, awaited, and storing on request only."""
    for expected in ("1", "2", "2"):
        async with await AsyncPythonRuntime.open(folder, "r", durable=False) as runtime:
            assert expected == (await runtime.execute("n = globals().get('n', 0) + 1; n")).value
            if expected == "1":
                await runtime.checkpoint()


# -- what is written --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_changed_column_of_a_wide_frame_writes_that(make_runtime: Make, folder: Path) -> None:
    """20 MB in 50 columns: one column and two chunks at its ends, not the frame."""
    pytest.importorskip("pandas")
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "import numpy as np, pandas as pd; df = pd.DataFrame(np.random.random((50, 50_000)).T)")
    first = runtime.checkpoint()
    assert first.stored > 20_000_000
    value(runtime, "df.iloc[:, 7] = np.random.random(50_000)")
    assert runtime.checkpoint().stored < 50_000 * 8 + 2 * CHUNK + 20_000
    value(runtime, "df['new'] = 1.5")
    assert runtime.checkpoint().stored < 50_000 * 8 + 2 * CHUNK + 20_000


def test_nothing_is_written_again_that_did_not_change(make_runtime: Make, folder: Path) -> None:
    """Variables that share objects, classes and files too: only the description is written."""
    runtime = make_runtime(store=folder, name="r")
    value(
        runtime,
        "class P: pass\np = P(); p.data = list(range(50_000)); q = [p]; t = 'x' * 300_000\n"
        "open('f', 'wb').write(bytes(range(256)) * 4000)",
    )
    runtime.checkpoint()
    assert runtime.checkpoint().stored < 3_000


def test_the_next_cell_sees_nothing_of_it(make_runtime: Make, folder: Path) -> None:
    """Storing runs user code in a copy: its changes of objects are invisible to the runtime."""
    runtime = make_runtime(store=folder, name="r")
    value(
        runtime,
        "class A:\n  n = 0\n  def __reduce__(self):\n    A.n += 1; print('here')\n    return A, ()\na = A()",
    )
    runtime.checkpoint()
    result = runtime.execute("A.n")
    assert ("0", "", "") == (result.value, result.stdout, result.stderr)


def test_a_jail_that_cannot_copy_itself_goes_on(make_runtime: Make, folder: Path) -> None:
    """User code that breaks off the copy costs the checkpoint, nothing else."""
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "import os\nclass A:\n  def __reduce__(self): os._exit(3)\na = A()")
    with pytest.raises(CheckpointRefusedError, match="ended before it was done"):
        runtime.checkpoint()
    value(runtime, "del a; b = 1")
    assert runtime.checkpoint().complete


def test_a_library_whose_threads_do_not_survive_a_fork_is_stored_in_place(
    make_runtime: Make, folder: Path
) -> None:
    """A copy would hang there: the runtime waits instead."""
    pytest.importorskip("polars")
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "import polars as pl; df = pl.DataFrame({'a': range(1000)}); n = df['a'].sum()")
    runtime.hibernate()
    assert "499500" == value(runtime, "df['a'].sum()")


# -- hibernation and loss ---------------------------------------------------------------------------------


def test_a_hibernating_runtime_has_no_jail(make_runtime: Make, folder: Path) -> None:
    """Until it is called: then it continues from its state, more than once."""
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "x = 1\ndef f(): return x")
    for expected in "12":
        runtime.hibernate()
        assert not runtime.core.running
        assert expected == value(runtime, "f()")
        value(runtime, "x += 1")


def test_a_lost_jail_goes_back_to_the_checkpoint(make_runtime: Make, folder: Path) -> None:
    """And the result names it; after a reset there is none."""
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "x = 1")
    runtime.checkpoint()
    value(runtime, "x = 2")
    lost = runtime.execute("print('begun', flush=True)\nwhile True: pass", on_output=lambda *_: kill(runtime))
    assert "rolled_back" == lost.state
    assert "the state after step 1" in str(lost.error)
    assert "1" == value(runtime, "x")
    runtime.reset()
    assert "False" == value(runtime, "'x' in globals()")


async def test_awaiting_code_has_the_same(folder: Path) -> None:
    """The async API: checkpoint, hibernate, restore, durable."""
    async with AsyncPythonRuntime(store=folder, name="r", durable=True) as runtime:
        await runtime.execute("x = 1")
        await runtime.inject(Variable("y", 2))
        assert "late" == (await runtime.checkpoint("late")).label
        await runtime.hibernate()
        assert "(1, 2)" == (await runtime.execute("x, y")).value
    again = await AsyncPythonRuntime.restore(folder, "r", "late")
    assert "(1, 2)" == (await again.execute("x, y")).value
    await again.close()


# -- durability -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_value_that_never_ends_is_not_waited_for(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell that made it ran, and the error says so at once; states are stored again once it is gone."""
    monkeypatch.setattr(transfer, "STALL_SECONDS", 0.1)
    policy = SandboxPolicy(preload=("numpy",), call_timeout=0.1)
    runtime = make_runtime(store=folder, name="r", durable=True, sandbox=policy)
    endless = "class X:\n    def __reduce__(self): __import__('time').sleep(600)\nx = X()"
    with pytest.raises(NotDurableError, match=r"took longer than 0\.1 s to be pickled"):
        runtime.execute(endless)
    assert runtime.execute("del x; y = 5").success
    runtime.close()
    assert "5" == value(restored(make_runtime, folder), "y")


def test_what_was_acknowledged_is_stored(make_runtime: Make, folder: Path) -> None:
    """Each cell, injection, update, deletion, file and rollback, when its call returns."""

    def stored(expression: str) -> str | None:
        copy = folder.parent / os.urandom(4).hex()
        shutil.copytree(folder, copy)
        return value(restored(make_runtime, copy), expression)

    runtime = make_runtime(store=folder, name="r", durable=True)
    value(runtime, "x = 1")
    assert "1" == stored("x")
    runtime.inject(Variable("y", 2))
    runtime.update_variable("x", 3)
    assert "(3, 2)" == stored("x, y")
    runtime.delete("y")
    runtime.files.write("f", "text")
    assert "(False, 'text')" == stored("'y' in globals(), open('f').read()")
    value(runtime, "x = 9")
    runtime.rollback(1)
    assert "1" == stored("x")


def test_the_record_of_what_was_acknowledged_is_written(
    make_runtime: Make, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records may otherwise wait for each other for long: after a kill the history can be queried, and patched."""
    monkeypatch.setattr(store_writer, "_LINGER", 600.0)
    file = tmp_path / "steps.sqlite"
    runtime = make_runtime(store=folder, name="r", durable=True, history=str(file))
    value(runtime, "x = 1")
    with closing(sqlite3.connect(file)) as database:
        assert [(1,)] == database.execute("SELECT number FROM history_steps").fetchall()


def test_nobody_loses_anything_with_a_durable_runtimes_jail(make_runtime: Make, folder: Path) -> None:
    """The cell in which it dies is rolled back; after a death between cells the next runs as usual."""
    runtime = make_runtime(store=folder, name="r", durable=True)
    value(runtime, "x = [1]")
    code = "x.append(2); print('begun', flush=True)\nwhile True: pass"
    assert "rolled_back" == runtime.execute(code, on_output=lambda *_: kill(runtime)).state
    assert "[1]" == value(runtime, "x")
    value(runtime, "x = [2]")
    kill(runtime)
    assert "[2]" == value(runtime, "x")


def test_a_durable_runtime_goes_on_from_no_older_state_than_what_was_acknowledged(
    make_runtime: Make, folder: Path
) -> None:
    """A crash after steps without snapshots finds an older snapshot, and a checkpoint with everything."""
    runtime = make_runtime(store=folder, name="r", durable=True)
    value(runtime, "x = [1]")
    value(runtime, "import threading\nthread = threading.Thread(target=threading.Event().wait, daemon=True)")
    value(runtime, "thread.start()")
    value(runtime, "x.append(2)")
    crashed = runtime.execute("x.append(3); import os; os._exit(1)")
    assert "rolled_back" == crashed.state
    assert "the state after step 4" in str(crashed.error)
    assert "[1, 2]" == value(runtime, "x")


def test_a_step_whose_jail_is_gone_is_not_acknowledged(make_runtime: Make, folder: Path) -> None:
    """Another jail that was started since lacks its effects: storing that one must not acknowledge it."""
    runtime = make_runtime(store=folder, name="r", durable=True)
    value(runtime, "x = 1")
    checkpoints = runtime.core.checkpoints
    begin = checkpoints._writer.begin

    def late() -> object:
        """The jail ends between the end of the cell and its checkpoint, and another call starts a new one."""
        checkpoints._writer.begin = begin  # type: ignore[method-assign]
        kill(runtime)
        return begin()

    checkpoints._writer.begin = late  # type: ignore[method-assign, assignment]
    with pytest.raises(NotDurableError):
        runtime.execute("x = 2")
    assert "rolled_back" == runtime.execute("x").state
    assert "1" == value(runtime, "x")


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_reset_is_durable(make_runtime: Make, folder: Path) -> None:
    """The reset state does not come back."""
    runtime = make_runtime(store=folder, name="r", durable=True)
    value(runtime, "x = 1")
    runtime.reset()
    runtime.close()
    assert "False" == value(restored(make_runtime, folder), "'x' in globals()")


def test_a_reset_that_cannot_be_stored_was_done(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller gets the error; the rules match the empty namespace, and the next change is durable."""
    runtime = make_runtime(
        store=folder, name="r", durable=True, security_checker=SecurityChecker(default_rules())
    )
    value(runtime, "import math as m")
    with monkeypatch.context() as disk:
        disk.setattr(LocalDraft, "write", full)
        with pytest.raises(NotDurableError, match="No space left") as caught:
            runtime.reset()
    assert caught.value.outcome is None
    assert "False" == value(runtime, "'m' in globals()")
    runtime.close()
    assert "False" == value(restored(make_runtime, folder), "'m' in globals()")


def test_the_rules_learn_from_a_cell_that_is_not_durable(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran: the former meaning of its name is gone."""
    runtime = make_runtime(
        store=folder, name="r", durable=True, security_checker=SecurityChecker(default_rules())
    )
    value(runtime, "import os as p")
    with monkeypatch.context() as disk:
        disk.setattr(LocalDraft, "write", full)
        with pytest.raises(NotDurableError):
            runtime.execute("class p: _exit = len")
    assert "3" == value(runtime, "p._exit('abc')")


def test_what_is_not_durable_is_said_once(make_runtime: Make, folder: Path) -> None:
    """In the result of the cell that made it, as a line for the model."""
    runtime = make_runtime(store=folder, name="r", durable=True)
    assert [] == list(runtime.execute("a = 1").news)
    (line,) = runtime.execute("import time; g = (time.time() for i in ())").news
    assert line.startswith("`g` is not durable: ")
    assert [] == list(runtime.execute("a = 2").news)


def test_a_full_disk_is_no_acknowledgement(
    make_runtime: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call raises with the cell's result; once there is room the next one is durable again, with both."""
    runtime = make_runtime(store=folder, name="r", durable=True)
    value(runtime, "x = 1")

    with monkeypatch.context() as disk:
        disk.setattr(LocalDraft, "write", full)
        with pytest.raises(NotDurableError, match="No space left") as caught:
            runtime.execute("x = 2; x")
        with pytest.raises(NotDurableError, match="stored with the next call that can be") as nothing_given:
            runtime.inject(Variable("given", 4))
    assert "2" == caught.value.outcome.value  # type: ignore[attr-defined]
    assert nothing_given.value.outcome is None
    assert "outcome" not in f"{caught.value}{nothing_given.value}"
    value(runtime, "y = 3")
    runtime.close()
    assert "(2, 3, 4)" == value(restored(make_runtime, folder), "x, y, given")


@pytest.mark.slow
def test_a_durable_runtime_does_not_fill_its_store(make_runtime: Make, folder: Path) -> None:
    """Old checkpoints go; labelled ones stay."""
    runtime = make_runtime(store=folder, name="r", durable=True, sandbox=SandboxPolicy(preload=()))
    value(runtime, "x = 0")
    runtime.checkpoint("begin")
    for _ in range(30):
        value(runtime, "x += 1")
    infos = CheckpointStore(folder).checkpoints("r")
    assert len(infos) <= 8 + 16 + 1
    assert "begin" in [info.label for info in infos]


def test_keys_that_are_no_names_are_harmless(make_runtime: Make, folder: Path) -> None:
    """Inspecting the namespace does not run their code; they are reported as not stored."""
    runtime = make_runtime(store=folder, name="r")
    value(runtime, "class K:\n  def __hash__(self): return 1\n  def __eq__(self, other): raise SystemError\n")
    value(runtime, "globals()[K()] = 1; globals()[5] = 2; a = 1")
    assert not runtime.checkpoint().complete
    assert "globals()" in [thing.name for thing in foretold(folder, "r").unkept]
