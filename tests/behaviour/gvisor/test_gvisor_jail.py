"""A jail in gVisor behaves like any jail, except where its level documents a difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.snapshots.parked import is_parked, park_at_once

from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.policy import Mount, SandboxPolicy


def value(runtime: PythonRuntime, code: str) -> object:
    """The value of a cell's last expression; fails the test when the cell fails."""
    result = runtime.execute(code)
    assert result.error is None, result.error
    return result.value


def test_the_kernel_is_gvisors(gvisor: PythonRuntime) -> None:
    """The level is reported, and the kernel inside is not the host's."""
    assert "gvisor" == gvisor.isolation
    assert "'4.4.0'" == value(gvisor, "import os; os.uname().release")  # the version that gVisor reports


@pytest.mark.slow
def test_nothing_is_preloaded_but_all_can_be_imported(gvisor: PythonRuntime) -> None:
    """A jail that is not a fork starts with what its worker needs."""
    with PythonRuntime(sandbox=SandboxPolicy(isolation="gvisor", preload=())) as fresh:
        assert "False" == value(fresh, "import sys; 'numpy' in sys.modules")
    assert "6.0" == value(gvisor, "import numpy; float(numpy.arange(4.0).sum())")


def test_values_of_any_size_go_both_ways(gvisor: PythonRuntime) -> None:
    """In by descriptor, out in pieces: small, large, and values made of both."""
    big = np.arange(1_000_000, dtype=np.int64)
    gvisor.inject(Variable("pair", {"big": big, "small": [1, 2.5, "text"]}))
    value(gvisor, "pair['big'] += 1")
    back = gvisor.retrieve("pair")
    assert (1_000_000, [1, 2.5, "text"]) == (back["big"][-1], back["small"])
    assert 999_999 == big[-1]


def test_references_lead_in_and_out(gvisor: PythonRuntime) -> None:
    """From gVisor to another level and back, by reference: the client decodes nothing."""
    value(gvisor, "import numpy; made_here = numpy.ones(500_000)")
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as other:
        other.inject(Variable("seen", gvisor.share("made_here")))
        assert "500000.0" == value(other, "seen *= 1; float(seen.sum())")
        gvisor.inject(Variable("returned", other.share("seen")))
    assert "500000.0" == value(gvisor, "float(returned.sum())")


def test_host_functions_take_and_give_large_values(gvisor: PythonRuntime) -> None:
    """Their socket enters as a descriptor; arguments leave in pieces."""

    def doubled(numbers: np.ndarray) -> np.ndarray:
        return numbers * 2

    gvisor.inject(Function(doubled, host=True))
    assert "1200000.0" == value(gvisor, "import numpy; float(doubled(numpy.ones(600_000)).sum())")


def test_files_go_both_ways(gvisor: PythonRuntime) -> None:
    """Small and large, as at the other levels."""
    gvisor.files.write("in.bin", b"\x01" * 3_000_000)
    value(gvisor, "open('out.bin', 'wb').write(open('in.bin', 'rb').read()[:200_000])")
    assert b"\x01" * 200_000 == gvisor.files.read("out.bin")
    assert {b"in.bin", b"out.bin"} <= {entry.raw for entry in gvisor.files.list().entries}


def test_output_is_complete_and_ordered(gvisor: PythonRuntime) -> None:
    """Python's streams, a child's, and more than a packet holds."""
    result = gvisor.execute(
        "import subprocess\nprint('a'); subprocess.run(['echo', 'b']); print('c' * 300_000)"
    )
    assert ("a\nb\n" + "c" * 300_000 + "\n") == result.stdout


def test_the_environment_is_the_policys(gvisor: PythonRuntime) -> None:
    """The policy's variables among those of every jail; nothing of the client's."""
    code = "import os; [os.environ[name] for name in ('COLOUR', 'HOME')]"
    assert "['deep blue', '/workspace']" == value(gvisor, code)
    assert "1" == value(gvisor, "os.cpu_count()")


def test_processes_are_real_ones(gvisor: PythonRuntime) -> None:
    """Process pools with fork work: there is a /dev/shm, and semaphores."""
    code = "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as pool: done = pool.map(abs, [1, -2])"
    assert "[1, 2]" == value(gvisor, f"{code}\ndone")


def test_a_cell_can_be_interrupted(gvisor: PythonRuntime) -> None:
    """By its time limit, in the middle of a loop; the state is kept."""
    value(gvisor, "kept = 7")
    result = gvisor.execute("while True: pass", timeout=0.3)
    assert result.error is not None
    assert ("time", "kept", "7") == (result.error.reason, result.state, value(gvisor, "kept"))


@pytest.mark.slow
@pytest.mark.usefixtures("gvisor")
def test_a_crash_costs_what_cannot_be_made_again() -> None:
    """This level makes no copies. The supervisor restores the beginning, with small values that were bound, and cells
    that do the same whenever they run are run again."""
    ends = {"exit": "import os; os._exit(3)", "signal 11": "import ctypes; ctypes.string_at(0)"}
    with PythonRuntime(sandbox=SandboxPolicy(isolation="gvisor", preload=())) as runtime:
        value(runtime, "kept, rows = 7, []")
        for reason, code in ends.items():
            value(runtime, "rows.append([8])")
            value(runtime, "import time; rows[-1].append(time.time())")
            result = runtime.execute(code, timeout=60)
            assert result.error is not None
            assert (reason, "rolled_back") == (result.error.reason, result.state)
            assert "(7, [[8]])" == value(runtime, "kept, rows")
            value(runtime, "rows.clear()")


@pytest.mark.slow
def test_too_much_memory_costs_the_state(gvisor: PythonRuntime) -> None:
    """The state is lost, and the next cell runs in a new jail."""
    result = gvisor.execute("rows = []\nwhile True: rows.append(bytearray(b'x' * 2**24))", timeout=60)
    assert result.error is not None
    assert ("memory", "lost", "2") == (result.error.reason, result.state, value(gvisor, "1 + 1"))


def test_the_disk_has_its_limit(gvisor: PythonRuntime) -> None:
    """One for everything that the jail writes; files in it belong to the jail alone."""
    result = gvisor.execute("open('big', 'wb').write(bytes(33 * 2**20))")
    assert result.error is not None
    assert "OSError" == result.error.type
    value(gvisor, "import os; os.remove('big'); open('/tmp/small', 'w').write('x')")


@pytest.mark.slow
@pytest.mark.usefixtures("gvisor")
def test_noexec_keeps_programs_from_being_run() -> None:
    """In each writable folder; installed programs still run. Mapping is not prevented at this level."""
    copies = [f"{folder}/copy" for folder in ("/workspace", "/tmp", "/dev/shm")]
    put = f"import shutil, subprocess\nfor copy in {copies}: shutil.copy('/bin/echo', copy)"
    with PythonRuntime(sandbox=SandboxPolicy(isolation="gvisor", preload=(), noexec=True)) as runtime:
        assert "0" == value(runtime, f"{put}\nsubprocess.run(['echo', 'x']).returncode")
        refused = [runtime.execute(f"subprocess.run([{copy!r}])").error for copy in copies]
        assert ["PermissionError"] * 3 == [error and error.type for error in refused]


@pytest.mark.slow
def test_a_status_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, gvisor: PythonRuntime) -> None:
    """The supervisor inside answers, though gVisor reports less than Linux; also with no other process."""
    park_at_once(monkeypatch)
    with PythonRuntime(sandbox=SandboxPolicy(isolation="gvisor", preload=())) as idle:
        assert idle.execute("x = 1").success
        assert is_parked(idle)
        for status in (gvisor.status(), idle.status()):
            assert status.memory > 10**6
            assert 1 <= status.processes < 10


@pytest.mark.slow
@pytest.mark.usefixtures("gvisor")
def test_mounts_are_there(tmp_path: Path) -> None:
    """Read-only ones and writable ones, and an outside change is seen inside."""
    shown, given = tmp_path / "shown", tmp_path / "given"
    for folder in (tmp_path, shown, given):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    (shown / "text").write_text("one")
    mounts = [
        Mount(source=str(shown), target="/shown"),
        Mount(source=str(given), target="/workspace/given", writable=True),
    ]
    with PythonRuntime(sandbox=SandboxPolicy(isolation="gvisor", preload=(), mounts=mounts)) as runtime:
        assert "'one'" == value(runtime, "open('/shown/text').read()")
        (shown / "text").write_text("two!")
        assert "'two!'" == value(runtime, "open('/shown/text').read()")
        refused = runtime.execute("open('/shown/text', 'w')")
        assert refused.error is not None
        value(runtime, "open('given/answer', 'w').write('from inside')")
    assert "from inside" == (given / "answer").read_text()
