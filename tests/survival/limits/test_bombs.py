"""An allocation without end meets a limit; the result has the limit, the amount and what happened to the state."""

from __future__ import annotations

import os
import re

import pytest
from tests.support.limits.fixtures import StartRuntime
from tests.support.overdue import LIMITS, overdue
from tests.support.processes import kernel_kills

from cenote.runtime import ErrorInfo, ExecutionResult

TEN_PROCESSES = """
import os, time
children = []
for _ in range(10):
    if not (child := os.fork()):
        {fill}
        time.sleep(200)
        os._exit(0)
    children.append(child)
while children:
    child, status = os.wait()
    children.remove(child)
    if status:
        for child in children:
            os.kill(child, 9)
        raise ChildProcessError(status)"""

PRIVATE = 'filled = bytearray(b"x" * (40 << 20))'
IN_A_FILE = 'os.write(os.memfd_create("part"), b"x" * (40 << 20))'

MEMORY_FILES = """
import os, time
files = [os.memfd_create(str(number)) for number in range(20)]
for file in files:
    os.write(file, b"x" * (20 << 20))
time.sleep(200)"""

DISK_IN_MEMORY = """
import time
with open("big", "wb") as file:
    for _ in range(400):
        file.write(b"x" * (1 << 20))
time.sleep(200)"""

SHARED_MAPPING = """
import mmap, time
shared = [mmap.mmap(-1, 20 << 20) for _ in range(20)]
for one in shared:
    one.write(b"x" * (20 << 20))
time.sleep(200)"""


MAPPED_AND_OPEN = """
import ctypes, mmap, os, time
libc, size = ctypes.CDLL(None), 14 << 20
libc.mmap.restype = ctypes.c_void_p
for number in range(10):
    file = os.memfd_create(str(number))
    for _ in range(14):
        os.write(file, b"x" * (1 << 20))
    if number % 2:  # Python's own mmap keeps a descriptor
        place = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file, ctypes.c_long(0))
        assert libc.memchr(ctypes.c_void_p(place), ord("y"), ctypes.c_size_t(size)) == 0
        os.close(file)
time.sleep(200)"""

MAPPED_ONLY = """
import ctypes, mmap, os, time
libc, size = ctypes.CDLL(None), 14 << 20
for number in range(10):
    file = os.memfd_create(str(number))
    for _ in range(14):
        os.write(file, b"x" * (1 << 20))
    libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file, ctypes.c_long(0))
    os.close(file)
time.sleep(200)"""

SHARED_MEMORY = """
import time
from multiprocessing import shared_memory
parts = [shared_memory.SharedMemory(create=True, size=20 << 20) for _ in range(10)]
for part in parts:
    part.buf[:] = b"x" * (20 << 20)
time.sleep(200)"""

SLOW_MEMORY_FILES = """
import os, time
for number in range(40):
    file = os.memfd_create(str(number))
    for _ in range(10):
        os.write(file, b"x" * (1 << 20))
        time.sleep(0.01)
time.sleep(200)"""


PAGE_TABLES = """
import ctypes, time
libc, size = ctypes.CDLL(None), 200 << 30
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
libc.madvise(ctypes.c_void_p(place), ctypes.c_size_t(size), 15)
for step in range(place, place + size, 1 << 21):
    ctypes.c_char.from_address(step).value
time.sleep(200)"""

SOCKETS = """
import socket, time
data, held = bytes(60_000), []
for _ in range(1_500):
    held.append(socket.socketpair())
    held[-1][0].setblocking(False)
    try:
        while True:
            held[-1][0].send(data)
    except BlockingIOError:
        pass
time.sleep(200)"""


def failed(result: ExecutionResult) -> ErrorInfo:
    assert not result.success
    assert result.error is not None
    return result.error


@pytest.mark.parametrize("fill", [PRIVATE, IN_A_FILE], ids=["private", "in a memory file"])
def test_memory_of_many_processes(start_runtime: StartRuntime, mode: str, fill: str) -> None:
    """Each far below the limit, together above it: RLIMIT_DATA would not notice."""
    error = failed(start_runtime(limits=mode).execute(TEN_PROCESSES.format(fill=fill)))
    assert "memory" == error.reason
    assert "limit" in error.message


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("source", "disk"),
    [
        (MEMORY_FILES, "64MiB"),
        (MAPPED_AND_OPEN, "64MiB"),
        pytest.param(
            MAPPED_ONLY, "64MiB", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root sees these")
        ),
        (SHARED_MEMORY, "1GiB"),
        (DISK_IN_MEMORY, "1GiB"),
        (SHARED_MAPPING, "64MiB"),
        (PAGE_TABLES, "64MiB"),
        (SOCKETS, "64MiB"),
    ],
    ids=[
        "memory files",
        "mapped here, open there",
        "mapped and never touched",
        "shared memory",
        "disk",
        "shared mappings",
        "page tables",
        "what waits in sockets",
    ],
)
def test_memory_that_is_no_private_memory(
    start_runtime: StartRuntime, mode: str, source: str, disk: str
) -> None:
    """It counts too; the kill names usage and limit, and without snapshots reports that the state is lost."""
    result = start_runtime(limits=mode, disk=disk, snapshots="none").execute(source)
    error = failed(result)
    assert ("memory", "lost") == (error.reason, result.state)
    used, limit = map(int, re.findall(r"used (\d+) MiB of (\d+) MiB", error.message)[0])
    assert 96 <= limit <= used + 1
    assert "everything that earlier cells made is gone" in error.message


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "beyond"), [("cgroup", 0), ("watchdog", 48)], indirect=["mode"])
def test_how_far_memory_files_get(start_runtime: StartRuntime, mode: str, beyond: int) -> None:
    """Each file is far below any limit for one. A control group lets no page pass; at a hundred mebibytes a second
    a watchdog may be late by half a second, in MiB."""
    error = failed(start_runtime(limits=mode).execute(SLOW_MEMORY_FILES))
    assert "memory" == error.reason
    used, limit = map(int, re.findall(r"used (\d+) MiB of (\d+) MiB", error.message)[0])
    assert limit - 1 <= used <= limit + beyond


def test_a_runtime_goes_on_after_it(start_runtime: StartRuntime, mode: str) -> None:
    """The next cell has a new jail with limits of the same kind."""
    runtime = start_runtime(limits=mode)
    before = runtime.limits
    failed(runtime.execute(MEMORY_FILES))
    assert "42" == runtime.execute("6 * 7").value
    assert before == runtime.limits


def test_below_the_limit_nothing_happens(start_runtime: StartRuntime, mode: str) -> None:
    """Two processes that share the allowed amount survive."""
    source = """
import os
if not (child := os.fork()):
    filled = bytearray(b"x" * (12 << 20))
    os._exit(7)
filled = bytearray(b"x" * (12 << 20))
os.waitstatus_to_exitcode(os.wait()[1])"""
    assert "7" == start_runtime(limits=mode).execute(source).value


def test_a_large_allocation_is_an_ordinary_error(start_runtime: StartRuntime, mode: str) -> None:
    """One process meets its own limit first: MemoryError, and the state is kept."""
    result = start_runtime(limits=mode).execute("data = bytearray(500 << 20)")
    error = failed(result)
    assert ("MemoryError", "memory", "kept") == (error.type, error.reason, result.state)
    assert "memory limit is" in error.message


@pytest.mark.sweep
@pytest.mark.parametrize(
    "source",
    [
        "import os, time\nwhile True:\n    if not os.fork():\n        time.sleep(200)\n        os._exit(0)",
        "import subprocess\nheld = []\nwhile True:\n    held.append(subprocess.Popen(['sleep', '200']))",
        "import threading\nstop = threading.Event()\n"
        "while True:\n    threading.Thread(target=stop.wait, daemon=True).start()",
    ],
    ids=["fork", "subprocess", "thread"],
)
def test_processes_and_threads(start_runtime: StartRuntime, mode: str, source: str) -> None:
    """A bomb of either kind gets an error that names the limit, and the runtime survives."""
    runtime = start_runtime(limits=mode, processes=16, memory="512MiB")
    error = failed(runtime.execute(source))
    assert "processes" == error.reason
    assert "the limit is 16 processes and threads at once" in error.message
    assert "42" == runtime.execute("6 * 7").value


def test_disk(start_runtime: StartRuntime) -> None:
    """A full disk is named in the error."""
    error = failed(start_runtime(disk="8MiB").execute("open('big', 'wb').write(bytes(20 << 20))"))
    assert "disk" == error.reason
    assert "used 8 MiB of 8 MiB" in error.message


def test_inodes(start_runtime: StartRuntime) -> None:
    """Empty files have a separate limit, and the error distinguishes it from that of bytes."""
    error = failed(
        start_runtime(disk="8MiB").execute("for n in range(10**6):\n    open(f'file-{n}', 'w').close()")
    )
    assert "disk" == error.reason
    assert "the limit is 2048 files and folders" in error.message


def test_output(start_runtime: StartRuntime) -> None:
    """Output beyond the limit loses its middle; it is counted whole."""
    result = start_runtime(output="4KiB").execute("for _ in range(1000):\n    print('x' * 99)")
    assert result.success
    assert result.truncated
    assert 100_000 == result.usage.output_bytes
    assert len(result.stdout) < 8 * 2**10


def test_a_cell_that_never_ends(hasty: None, start_runtime: StartRuntime) -> None:
    """A cell that ignores the interrupt loses its own changes; usage and limit are named."""
    source = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun')\nwhile True: pass"
    result = overdue(start_runtime(), source)
    error = failed(result)
    assert ("time", "rolled_back") == (error.reason, result.state)
    (limit,) = re.findall(r"used \d+\.\d s of (\d+\.\d) s", error.message)
    assert float(limit) in LIMITS


def test_a_signal(start_runtime: StartRuntime) -> None:
    """A crash is unrelated to limits, and is reported as one."""
    error = failed(start_runtime().execute("import os\nos.kill(os.getpid(), 11)"))
    assert "signal 11" == error.reason


def test_a_suicide_is_no_memory_kill(start_runtime: StartRuntime, mode: str) -> None:
    """SIGKILL from inside the jail is not mistaken for the kernel's, except while the kernel kills elsewhere."""
    runtime = start_runtime(limits=mode)
    reason, before = "", -1
    while before != kernel_kills():
        before = kernel_kills()
        reason = failed(runtime.execute("import os\nos.kill(os.getpid(), 9)")).reason
    assert "killed" == reason
