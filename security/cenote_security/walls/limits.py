"""What a jail's processes start with: their resource limits, and their environment variables.

What limits per process cannot bound (memory files, many small processes) is said in each line. A limit on the whole
jail belongs to a control group or to the watchdog outside; it can be added beside these without touching them. The
environment has nothing of the client's, and sizes the thread pools of libraries by the policy.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

OPEN_FILES: Final = 4096
"""Descriptors per process. Enough for data work; below what makes `close` loops slow."""

LOCKED_BYTES: Final = 64 * 2**10
"""What locked memory a process may have: a jail must not pin the host's RAM."""

PENDING_SIGNALS: Final = 1024

CORE_BYTES: Final = 1
"""No core dump. With 0 the kernel still starts the program that `core_pattern` names, as the host's root, and feeds
it what a jail's process holds; 1 is the value that stops this too (fs/coredump.c)."""


OOM_STEP: Final = 500
"""What a jail's out-of-memory score is above its client's: as if it had half of the machine's memory more."""

MAX_OOM_SCORE: Final = 1000


def table(memory: int, disk: int, processes: int) -> dict[int, tuple[int, int]]:
    """`{RLIMIT_*: (soft, hard)}` for limits in bytes, and a number of processes beside the warden. Pure.

    RLIMIT_DATA counts private writable memory, mappings included. RLIMIT_AS would count reservations too, and
    numpy, Arrow and thread stacks reserve far more than they use. Memory files escape both.
    RLIMIT_FSIZE bounds one file. A memory file is a file to it, and a value that leaves the jail may be as large as
    the jail's memory.
    RLIMIT_NPROC counts per user *and user namespace* when set after the namespace is made: so it is per jail.
    """
    size = max(disk, memory)
    return {
        resource.RLIMIT_DATA: (memory, memory),
        resource.RLIMIT_FSIZE: (size, size),
        resource.RLIMIT_NPROC: (processes + 1, processes + 1),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_CORE: (CORE_BYTES, CORE_BYTES),
        resource.RLIMIT_MEMLOCK: (LOCKED_BYTES, LOCKED_BYTES),
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_RTPRIO: (0, 0),
        resource.RLIMIT_NICE: (0, 0),
        resource.RLIMIT_SIGPENDING: (PENDING_SIGNALS, PENDING_SIGNALS),
    }


def apply(memory: int, disk: int, processes: int, unknown: Container[int] = ()) -> None:
    """Set the limits for this process and all that it starts; never above what it has now.

    unknown: kinds of limits that the kernel does not have.
    """
    for kind, (soft, hard) in table(memory, disk, processes).items():
        if kind in unknown:
            continue
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))


def score_of_jails(proc: int) -> str:
    """The out-of-memory score that jails of this process get: when the host runs out of memory, a jail goes before
    its client, and before what the host is there for.

    Relative to what the client passed on: where a cluster has raised that, less would not even be permitted.
    proc: a descriptor of `/proc`.
    """
    with open(os.open("self/oom_score_adj", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)) as file:
        return str(oom_score(int(file.read())))


def oom_score(now: int) -> int:
    """Of a jail whose client has `now`. Pure."""
    return min(max(now, 0) + OOM_STEP, MAX_OOM_SCORE)


def data_in_use(proc: int) -> int:
    """Bytes of this process that RLIMIT_DATA counts: what a fork begins with. proc: a descriptor of `/proc`."""
    with open(os.open("self/status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)) as lines:
        for line in lines:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def tasks_of(uid: int, proc: Path = Path("/proc")) -> int:
    """How many processes and threads of a user the machine runs now. Without a user namespace they all count.

    One that ends while it is looked at counts for nothing, wherever the look at it has got to.
    """
    total = 0
    for process in proc.iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):
            status = (process / "status").read_text()
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            if int(fields["Uid"].split()[0]) == uid:
                total += int(fields["Threads"])
    return total


# Each library reads its own; none of them asks the others.
_POOL_SIZES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMEXPR_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "PYTHON_CPU_COUNT",
)

SINGLE_THREADED: Final[Mapping[str, str]] = {
    **dict.fromkeys(_POOL_SIZES, "1"),
    # Arrow's allocator starts a thread at import; a process that forks must have one thread.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # OpenBLAS has its threads spin after each product, for 2 to the power of this in cycles. For the 25 ms that this
    # takes by default the threads cannot be attributed, so no copy of the process could be made.
    "OPENBLAS_THREAD_TIMEOUT": "22",
    # Its other allocator reserves a gibibyte as if it were used, which counts against the memory limit.
    "MIMALLOC_ARENA_EAGER_COMMIT": "0",
}
"""What a process sets before it imports modules in order to fork afterwards."""


_NO_INSTALLS: Final[Mapping[str, str]] = {
    # pip would try for ten seconds, and then not say that there is no network; now it names this "index" at once.
    "PIP_INDEX_URL": "https://this-runtime-has-no-network.invalid/simple",
    "PIP_RETRIES": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


def jail_environment(
    *, workdir: str, temporary: str, programs: str, whole_cpus: int, extra: Mapping[str, str]
) -> dict[str, str]:
    """All environment variables of a jail. `extra`, the policy's, wins.

    whole_cpus: how many the policy lets libraries assume.
    programs: the folder of the interpreter, first on the path: a cell that starts `python` means the one it is in,
    with what is installed there, and not the system's, which may not even be.
    """
    pools = dict.fromkeys(_POOL_SIZES, str(whole_cpus))
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": workdir,
        "USER": "cave",
        "LOGNAME": "cave",
        "LANG": "C.UTF-8",
        "TMPDIR": temporary,
        "XDG_CACHE_HOME": f"{temporary}/.cache",
        "MPLCONFIGDIR": f"{temporary}/.matplotlib",
        "PYTHONDONTWRITEBYTECODE": "1",
        **_NO_INSTALLS,
        **SINGLE_THREADED,
        **pools,
        **extra,
    }
