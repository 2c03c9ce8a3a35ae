"""The rules of the suite's conftest: a run that leaves something behind fails, the network is out of reach."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.processes import kill

pytestmark = pytest.mark.timeout(600)  # they start several runs, which a busy machine delays

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"
LONG = 500.0
"""Seconds that a run may take: only a hang takes this long."""

CLEAN = "def test_it(tmp_path): (tmp_path / 'file').touch()"
ORPHAN = (
    "import subprocess\n"
    "def test_it(): subprocess.run(['sh', '-c', 'env -i setsid sleep 600 >/dev/null 2>&1 &'])"
)
TEMPORARY = "import tempfile\ndef test_it(): tempfile.mkdtemp(prefix='forgotten-')"
ADDRESSED = "import pytest\n@pytest.mark.parametrize('x', [object()], ids=repr)\ndef test_it(x): pass"
MANY = "import pytest\n@pytest.mark.parametrize('x', range(8))\ndef test_it(x): pass"
BESIDE = "from pathlib import Path\ndef test_it(): Path(__file__).parents[1].joinpath('stray').touch()"


def empty_suite(folder: Path) -> Path:
    """The folder of a suite with our conftest, and the modules that it imports."""
    tests = folder / "tests"
    tests.mkdir()
    for path in CONFTEST.parent.glob("*.py"):
        shutil.copy(path, tests)
    return tests


def run_suite(folder: Path, *sources: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """A suite of these files with our conftest."""
    tests = empty_suite(folder)
    for number, source in enumerate(sources):
        (tests / f"test_{number}.py").write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--grace",
        "0.2",
        "-p",
        "no:cacheprovider",
        *options,
        str(tests),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONG)


def test_a_clean_run(tmp_path: Path) -> None:
    """What pytest gives a test and removes does not count."""
    done = run_suite(tmp_path, CLEAN)
    assert (0, True) == (done.returncode, "1 passed" in done.stdout), done.stdout + done.stderr


@pytest.mark.slow
def test_leftovers_fail_a_run(tmp_path: Path) -> None:
    """Even a process in its own session, with an empty environment and a dead parent, is found."""
    done = run_suite(tmp_path, ORPHAN, TEMPORARY, BESIDE)
    assert (1, True) == (done.returncode, "3 passed" in done.stdout), done.stdout + done.stderr
    found = re.search(r"process (\d+) is still alive: .*sleep 600", done.stdout)
    assert found is not None, done.stdout
    kill(int(found[1]))
    assert "left in the temporary folder: forgotten-" in done.stdout
    assert "left beside the sources: stray" in done.stdout


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.org", 80)])
def test_the_network_is_out_of_reach(address: tuple[str, int]) -> None:
    """A test that connects or looks up a name outside loopback fails at once."""
    with pytest.raises(AssertionError, match="only loopback"):
        socket.create_connection(address, timeout=1)


@pytest.mark.slow
def test_tests_of_a_standing_platform_stay_together(tmp_path: Path) -> None:
    """One process of a run has all of them, and then its share of the others, by files."""
    tests = empty_suite(tmp_path)
    (tests / "survival/cluster").mkdir(parents=True)
    for path in (
        "survival/cluster/test_one.py",
        "survival/cluster/test_two.py",
        "test_other.py",
        "test_more.py",
    ):
        (tests / path).write_text(MANY)
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONG)
    ran = re.findall(r"\[(gw\d)\].*PASSED tests/(\w+)", done.stdout)
    assert 32 == len(ran), done.stdout + done.stderr
    assert 3 == len(set(ran)) == len({where for worker, where in ran})
    assert 2 == len({worker for worker, where in ran})


def test_an_id_is_the_same_in_every_process(tmp_path: Path) -> None:
    """A case with an address in its id is refused: distributed processes could not agree on it."""
    done = run_suite(tmp_path, ADDRESSED)
    assert 4 == done.returncode
    assert "ids with addresses: tests/test_0.py::test_it[<object object at 0x" in done.stderr


SECOND_TIME = "from pathlib import Path\nran = Path(__file__).with_suffix('.ran')\ndef test_it():\n" + (
    "    first = not ran.exists()\n    ran.touch()\n    assert not first, 'too early'"
)
NEVER = "def test_it(): assert not 'ever'"


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=str)
def test_an_unstable_test_passes_and_is_listed(tmp_path: Path, options: tuple[str, ...]) -> None:
    """It fails beside others and passes alone. The list says how to reproduce the failure, and shows its message."""
    done = run_suite(tmp_path, SECOND_TIME, CLEAN, options=("--again", *options))
    assert (0, True) == (done.returncode, "1 passed, 1 unstable" in done.stdout), done.stdout + done.stderr
    assert re.search(
        r"UNSTABLE \S*test_0.py::test_it \(load [\d.]+, --randomly-seed=\d+, PYTHONHASHSEED=\d+\)",
        done.stdout,
    ), done.stdout
    assert "too early" in done.stdout


def test_failures_are_run_again_without_a_random_order(tmp_path: Path) -> None:
    """The run has no seed then, neither to use nor to name."""
    done = run_suite(tmp_path, SECOND_TIME, options=("--again", "-p", "no:randomly"))
    assert (0, True) == (done.returncode, "1 unstable" in done.stdout), done.stdout + done.stderr
    assert re.search(
        r"UNSTABLE \S*test_0.py::test_it \(load [\d.]+, -pno:randomly, PYTHONHASHSEED=\d+\)", done.stdout
    )


@pytest.mark.slow
def test_what_fails_alone_too_fails_the_run(tmp_path: Path) -> None:
    done = run_suite(tmp_path, NEVER, SECOND_TIME, options=["--again"])
    assert (1, True) == (done.returncode, "1 failed, 1 unstable" in done.stdout), done.stdout + done.stderr


def test_where_much_fails_nothing_is_run_again(tmp_path: Path) -> None:
    done = run_suite(tmp_path, *[SECOND_TIME] * 11, options=["--again"])
    assert (1, True) == (done.returncode, "unstable" not in done.stdout), done.stdout + done.stderr


SHARED = """import pathlib, pytest
@pytest.fixture(scope='module')
def shared():
    seen = pathlib.Path('seen')
    was_there = seen.exists()
    seen.touch()
    assert was_there
@pytest.mark.parametrize('number', range(11))
def test_it(shared, number): pass
"""


def test_what_many_share_fails_once(tmp_path: Path) -> None:
    """They are run again in one run, even where more failures than that would be too many."""
    done = run_suite(tmp_path, SHARED, options=["--again"])
    assert (0, True) == (done.returncode, "11 unstable" in done.stdout), done.stdout + done.stderr


FAMILIES = """import pytest
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.sweep
@pytest.mark.parametrize('inner', range(3))
@pytest.mark.parametrize('outer', 'ab')
def test_many(inner, outer): pass
@pytest.mark.sweep(cases=1)
@pytest.mark.parametrize('x', range(5))
def test_more(x): pass
@pytest.mark.parametrize('x', range(4))
def test_each(x): pass
"""


def test_a_quick_run_has_some_of_each_family(tmp_path: Path) -> None:
    """The same ones in any order, of both values of an outer parameter; without the option, all run."""
    done = run_suite(tmp_path, FAMILIES, options=("--quick", "-vv"))
    assert "7 passed, 9 deselected" in done.stdout, done.stdout + done.stderr
    ran = {test for test in re.findall(r"::(\S+) PASSED", done.stdout) if "each" not in test}
    assert {"test_many[a-0]", "test_many[b-0]", "test_more[0]"} == ran
    shutil.rmtree(tmp_path / "tests")
    assert "16 passed" in run_suite(tmp_path, FAMILIES).stdout


def has_quick_tests(text: str) -> bool:
    if re.search(r"(?m)^pytestmark = .*\bmark\.slow\b", text):
        return False
    tests = re.findall(r"(?m)^ *(?:async )?def test_", text)
    return len(tests) > len(re.findall(r"(?m)^ *@pytest\.mark\.slow$", text))


def test_each_subject_has_quick_tests() -> None:
    """`make test` covers each subject: one with only slow tests would not be covered."""
    folders: dict[str, list[Path]] = {}
    for path in CONFTEST.parent.rglob("test_*.py"):
        kind, *below, _ = path.relative_to(CONFTEST.parent).parts
        folders.setdefault(below[0] if below else kind, []).append(path)
    assert len(folders) > 40
    silent = [
        folder
        for folder, files in folders.items()
        if not any(has_quick_tests(path.read_text()) for path in files)
    ]
    assert [] == silent
