"""The environment variables of a jail: nothing of the client's, library thread pools sized by the policy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
    # takes by default nobody can tell whose they are, so no copy of the process could be made.
    "OPENBLAS_THREAD_TIMEOUT": "22",
    # Its other allocator reserves a gibibyte as if it were used, which counts against the memory limit.
    "MIMALLOC_ARENA_EAGER_COMMIT": "0",
}
"""What a process sets before it imports modules in order to fork afterwards."""


_NO_INSTALLS: Final[Mapping[str, str]] = {
    # pip would ask for ten seconds, and then not say that there is no network; now it names this "index" at once.
    "PIP_INDEX_URL": "https://this-runtime-has-no-network.invalid/simple",
    "PIP_RETRIES": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


def scrubbed(
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
