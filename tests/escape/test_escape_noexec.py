"""`noexec`: no file where a jail can write is run or mapped as code, as far as its level can prevent that.

Each attempt makes a file in a mounted folder if it gets through, and the test looks for that file from outside.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.errors import IsolationUnavailableError, UsageError
from cenote_security.policy import Mount, SandboxPolicy

ATTEMPTS = {
    "script": "run([put(f'#!/bin/sh\\n: > {MARK}\\n'.encode())])",
    "program": "run([put(TOUCH), MARK])",
    "program in tmp": "run([put(TOUCH, tempfile.gettempdir()), MARK])",
    "program in a mount": "run([put(TOUCH, FOLDER), MARK])",
    "hard link": "path = put(TOUCH); os.link(path, path + '2'); run([path + '2', MARK])",
    "renamed": "os.rename(put(TOUCH), 'moved'); run(['./moved', MARK])",
    "descriptor of a file": "run_open(os.open(put(TOUCH), os.O_RDONLY))",
    "memory file": "run_open(in_memory(0))",
    "memory file that asks for it": "run_open(in_memory(0x10))",  # MFD_EXEC
    "mode of a memory file": "file = in_memory(8); os.fchmod(file, 0o777); run_open(file)",
}
BY_MAPPING = {
    "loader": "run([LOADER, put(TOUCH), MARK])",
    "shared object": "import ctypes; ctypes.CDLL(put(open(LIBRARY, 'rb').read())); open(MARK, 'w')",
    "mapping": "mmap.mmap(os.open(put(TOUCH), os.O_RDONLY), 4096, mmap.MAP_PRIVATE, 5); open(MARK, 'w')",
}
"""Landlock has no right for these: it checks when a program starts, not when a file is mapped."""

PREAMBLE = """
import glob, mmap, os, subprocess, tempfile
TOUCH = open('/usr/bin/touch', 'rb').read()
LOADER = next(iter(glob.glob('/lib64/ld-linux-*') + glob.glob('/lib/ld-linux-*')))
LIBRARY = next(iter(glob.glob('/usr/lib/*/libz.so.1') + glob.glob('/usr/lib/*/libm.so.6')))
def put(content, folder='.'):
    file, path = tempfile.mkstemp(dir=os.path.abspath(folder))
    os.write(file, content); os.fchmod(file, 0o755); os.close(file)
    return path
def in_memory(flags):
    file = os.memfd_create('program', flags); os.write(file, TOUCH)
    return file
def run(command):
    subprocess.run(command)
def run_open(file):
    subprocess.run([f'/proc/self/fd/{file}', MARK], pass_fds=[file])
"""

Leaves = Callable[[str], bool]
"""Whether an attempt left its mark outside."""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that any user may write to, with all its parents accessible."""
    folder = Path(tempfile.mkdtemp(prefix="cenote-noexec-", dir="/var/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start(level: str, shared: Path) -> Iterator[Callable[[bool], Leaves]]:
    """start(noexec): a jail of the level, as a function that makes attempts in it."""
    runtimes: list[PythonRuntime] = []

    def start(noexec: bool) -> Leaves:
        mounts = [Mount(source=str(shared), writable=True)]
        policy = SandboxPolicy(isolation=level, preload=(), mounts=mounts, noexec=noexec)  # type: ignore[arg-type]
        runtime = PythonRuntime(sandbox=policy)
        runtimes.append(runtime)
        try:
            prepared = runtime.execute(
                f"{PREAMBLE}\nMARK, FOLDER = {str(shared / 'mark')!r}, {str(shared)!r}"
            )
        except IsolationUnavailableError as error:
            pytest.skip(str(error))
        assert prepared.success, prepared.error

        def leaves(attempt: str) -> bool:
            runtime.execute(attempt)
            left = (shared / "mark").exists()
            (shared / "mark").unlink(missing_ok=True)
            return left

        return leaves

    yield start
    for runtime in runtimes:
        runtime.close()


@pytest.mark.slow
def test_nothing_written_is_executed(start: Callable[[bool], Leaves]) -> None:
    """Scripts, programs, links, descriptors, memory files: in the working directory, in `/tmp`, in a mount."""
    leaves = start(True)
    assert [] == [name for name, attempt in ATTEMPTS.items() if leaves(attempt)]


@pytest.mark.slow
def test_without_it_each_attempt_gets_through(start: Callable[[bool], Leaves]) -> None:
    """So noexec stops them, not a mistake in them; only the last makes a file that could never be run."""
    leaves = start(False)
    assert ["mode of a memory file"] == [name for name, attempt in ATTEMPTS.items() if not leaves(attempt)]
    assert [] == [name for name, attempt in BY_MAPPING.items() if not leaves(attempt)]


@pytest.mark.slow
def test_mapping_is_stopped_by_mounts_only(level: str, start: Callable[[bool], Leaves]) -> None:
    """At `landlock`, which has none, a file can still be mapped as code: a documented limit."""
    leaves = start(True)
    expected = [] if level == "strict" else list(BY_MAPPING)
    assert expected == [name for name, attempt in BY_MAPPING.items() if leaves(attempt)]


@pytest.mark.slow
def test_what_is_installed_still_runs(start: Callable[[bool], Leaves]) -> None:
    """Programs of the system, and the interpreter with a script that was written here."""
    leaves = start(True)
    assert leaves("run(['touch', MARK])")
    assert leaves("import sys; run([sys.executable, '-c', f'open({MARK!r}, \"w\")'])")


def test_large_values_still_cross(level: str) -> None:
    """Sealed memory is not executable, so it may be made."""
    policy = SandboxPolicy(isolation=level, preload=(), noexec=True)  # type: ignore[arg-type]
    with PythonRuntime(sandbox=policy) as runtime:
        runtime.execute("value = b'x' * 1_000_000")
        assert 1_000_000 == len(runtime.retrieve("value"))


def test_none_has_no_such_wall() -> None:
    """Requesting it there is an error, not a promise that is not met."""
    with pytest.raises(UsageError, match="noexec"):
        SandboxPolicy(isolation="none", noexec=True)
