"""Patches of steps from before a fork, a sleep or another process: the history runs from its start."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from tests.places import Place

from cenote.harness import ApplyOptions, ApplyResult, Patch
from cenote.harness.patching.errors import NoWayError
from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.errors import NotDurableError
from cenote_worker.checkpoints.local_folder import LocalDraft
from cenote_worker.runtime import injection_log

pytestmark = pytest.mark.usefixtures("where")

Keep = Callable[[PythonRuntime], PythonRuntime]

ROOT = Path(__file__).resolve().parents[3]

SANDBOX = SandboxPolicy(preload=(), snapshots="none")
"""No state is stored in memory: neither an older state to begin with, nor the present one to go back to."""

CELLS = ("a = raw.pop()", "b = [a, 1]", "open('f', 'w').write(str(a))", "c = paid(len(b))", "b.append(c)")

LOOK = "raw, a, b, c, open('f').read(), open('g').read()"

BEFORE = "([1], 2, [2, 1, 20], 20, '2', 'given')"

PATCHED = "([1], 7, [7, 1, 20], 20, '7', 'given')"


class Client:
    """What a process offers its runtimes, and how often they have called it."""

    def __init__(self, folder: Path | None) -> None:
        """folder: where the runtimes are stored; None for a platform, which has its own."""
        self.calls = 0
        self._folder = folder
        self._name = "r" if folder else f"r-{token_hex(8)}"

    def _paid(self, number: int) -> int:
        self.calls += 1
        return 10 * number

    def given(self, *raw: int) -> dict[str, Any]:
        paid = Function(self._paid, name="paid", host=True)
        variables = [Variable("raw", list(raw))] if raw else []
        history = {"history": str(self._folder / "history.sqlite")} if self._folder else {}
        return {"variables": variables, "functions": [paid], "sandbox": SANDBOX, **history}

    def began(self) -> PythonRuntime:
        runtime = PythonRuntime(store=self._folder, name=self._name, durable=True, **self.given(1, 2))
        runtime.files.write("g", b"given")
        for cell in CELLS:
            assert runtime.execute(cell).success
        return runtime

    def restored(self, *raw: int) -> PythonRuntime:
        assert self._folder is not None
        return PythonRuntime.restore(self._folder, self._name, durable=True, **self.given(*raw))


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def client(where: Place, tmp_path: Path) -> Client:
    return Client(tmp_path if where.is_embedded else None)


def patched(runtime: PythonRuntime, code: str, options: ApplyOptions | None = None) -> ApplyResult:
    """With another first step."""
    state = runtime.state
    return state.apply(state.plan(Patch.replace_step(state.steps[0].number, code)), options)


def forked(runtime: PythonRuntime) -> PythonRuntime:
    branch = runtime.fork()
    assert isinstance(branch, PythonRuntime)
    return branch


def asleep(runtime: PythonRuntime) -> PythonRuntime:
    runtime.hibernate()
    return runtime


@pytest.mark.at("embedded", "relayed")
@pytest.mark.slow
@pytest.mark.parametrize("kept", [forked, asleep])
def test_steps_before_a_fork_and_a_sleep(client: Client, closing: ExitStack, kept: Keep) -> None:
    """A patch gives what a full run gives, without repeated calls. A failed patch leaves the same objects."""
    source = closing.enter_context(client.began())
    runtime = closing.enter_context(kept(source))
    runtime.execute("mine = object(); before = id(mine)")
    assert "failed" == patched(runtime, "a = None + raw.pop()").status
    assert f"(True, {BEFORE[1:]}" == runtime.execute(f"before == id(mine), {LOOK}").value
    assert ("applied", 7) == ((result := patched(runtime, "a = raw.pop() + 5")).status, len(result.records))
    assert PATCHED == runtime.execute(LOOK).value
    assert 1 == client.calls
    assert (BEFORE if kept is forked else PATCHED) == source.execute(LOOK).value


@pytest.mark.at("embedded", "relayed")
@pytest.mark.slow
@pytest.mark.parametrize("kept", [forked, asleep])
def test_values_put_in_before_a_fork_and_a_sleep(client: Client, closing: ExitStack, kept: Keep) -> None:
    """Each value is put in again at its place, also those that a later one has replaced."""
    source = closing.enter_context(client.began())
    for value in ([4], [5]):
        source.update_variable("raw", value)
        source.execute("c += raw.pop() + a")
    runtime = closing.enter_context(kept(source))
    assert "applied" == patched(runtime, "a = raw.pop() + 5").status
    assert ("([], 43)", 1) == (runtime.execute("raw, c").value, client.calls)


@pytest.mark.slow
def test_steps_of_a_process_that_was_killed_while_it_patched(client: Client, tmp_path: Path) -> None:
    """The next process finds the state before the patch, patches it from the record, and passes it on to a third."""
    child = subprocess.run([sys.executable, "-m", __name__, str(tmp_path)], cwd=ROOT, timeout=60, check=False)
    assert -signal.SIGKILL == child.returncode
    with client.restored(1, 2) as runtime:
        assert BEFORE == runtime.execute(LOOK).value
        assert "applied" == patched(runtime, "a = raw.pop() + 5").status
    with client.restored() as runtime:
        assert (PATCHED, 0) == (runtime.execute(LOOK).value, client.calls)


@pytest.mark.slow
def test_a_full_disk_is_no_acknowledgement(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The patch is reported as done and not durable; the next change stores it as well."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with client.began() as runtime:
        with monkeypatch.context() as disk:
            disk.setattr(LocalDraft, "write", full)
            with pytest.raises(NotDurableError, match="No space left") as caught:
                patched(runtime, "a = raw.pop() + 5")
        assert isinstance(caught.value.outcome, ApplyResult)
        assert "applied" == caught.value.outcome.status
        assert PATCHED == runtime.execute(LOOK).value
    with client.restored() as runtime:
        assert PATCHED == runtime.execute(LOOK).value


@pytest.mark.slow
def test_what_the_start_was_and_is_not_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values too large for the record have changed, or are missing; nothing changes then."""
    monkeypatch.setattr(injection_log, "MAX_PUT_IN", 0)
    client.began().close()
    with client.restored(1, 3) as runtime:
        with pytest.raises(NoWayError, match=r"found another value.* of raw"):
            patched(runtime, "a = raw.pop() + 5")
        assert BEFORE == runtime.execute(LOOK).value
    with client.restored() as runtime, pytest.raises(NoWayError, match="`raw`, put in before the first step"):
        patched(runtime, "a = raw.pop() + 5")
    with client.restored(1, 2) as runtime:
        runtime.update_variable("raw", [4])
        runtime.update_variable("raw", [4, 4])
        assert "applied" == patched(runtime, "a = raw.pop() + 5").status
        assert "([4, 4], 7)" == runtime.execute("raw, a").value


@pytest.mark.slow
@pytest.mark.parametrize("raw", [(), (1, 3)])
def test_another_process_has_what_was_put_in(client: Client, raw: tuple[int, ...]) -> None:
    """At first, and later in between; whatever the process gives its own runtime now."""
    with client.began() as runtime:
        runtime.update_variable("raw", [4])
        runtime.execute("c += raw.pop() + a")
        runtime.update_variable("raw", [5])
    with client.restored(*raw) as runtime:
        assert "applied" == patched(runtime, "a = raw.pop() + 5").status
        assert ("([5], 31)", 0) == (runtime.execute("raw, c").value, client.calls - 1)
        runtime.hibernate()
        assert "applied" == patched(runtime, "a = raw.pop() + 6").status
        assert "([5], 32)" == runtime.execute("raw, c").value


def _killed(folder: Path) -> None:
    """The process ends in the middle of a patch."""

    def progress(now: object) -> None:
        if getattr(now, "position", 0) == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    patched(Client(folder).began(), "a = raw.pop() + 100", ApplyOptions(progress=progress))


if __name__ == "__main__":
    _killed(Path(sys.argv[1]))


def test_behind_a_sleep_the_line_ends_where_a_patch_has_left_it(tmp_path: Path) -> None:
    """Also where its last steps were not run again: they have the last number, and no cell of the jail has it."""
    with PythonRuntime(store=tmp_path, name="r", sandbox=SandboxPolicy(preload=())) as runtime:
        for cell in ("a = 1", "b = a", "print('last')"):
            assert runtime.execute(cell).success
        assert (3,) == patched(runtime, "a = 2").steps_reused
        head = runtime.state.head
        runtime.hibernate()
        assert head == runtime.snapshot("kept").step
        runtime.execute("b = 7")
        runtime.rollback(head)
        assert ("2", "print('last')") == (runtime.execute("b").value, runtime.state.steps[-2].code)
