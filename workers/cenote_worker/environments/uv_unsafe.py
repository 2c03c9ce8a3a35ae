"""Runs uv and Python's compiler as a user would: with the user's proxies, certificates and index."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cenote_security.extras import importing
from cenote_worker.environments.errors import EnvironmentBuildError

Progress = Callable[[str], None]
"""Called with each line of progress."""

_LAST_LINES: Final = 12
"""Last lines of a failed program's output for the error: the reason is at the end."""

# Variables that would lead uv or Python to another interpreter, another project, or packages that need a build.
_NOT_PASSED: Final = (
    *(
        "VIRTUAL_ENV",
        "CONDA_",
        "PYTHON",
        "UV_PROJECT",
        "UV_WORKING",
        "UV_PYTHON",
        "UV_NO_BINARY",
        "UV_SYSTEM",
    ),
    *("UV_COMPILE", "UV_REQUIRE", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_BUILD"),
)


def base_python() -> str:
    """The interpreter of this process, outside of any virtual environment."""
    return os.path.realpath(sys.executable)


def run_uv(doing: str, arguments: Sequence[str], folder: Path, progress: Progress, given: str = "") -> str:
    """Runs uv in a folder. given: its standard input. Gives its output; its standard error goes to `progress`.

    doing: for the error. Raises EnvironmentBuildError, MissingExtraError.
    """
    with importing("building environments", "environments"):
        from uv import find_uv_bin
    try:
        program = find_uv_bin()
    except FileNotFoundError as error:
        raise EnvironmentBuildError(doing, f"the program of uv is missing ({error})") from None
    flags = ("--color", "never", "--no-progress", "--no-python-downloads")
    status, output, said = _run([program, *arguments, *flags], folder, progress, given)
    if status:
        raise EnvironmentBuildError(doing, said or f"uv ended with status {status}")
    return output


def compile_modules(site: Path, shown: str, progress: Progress) -> None:
    """Compiles the modules of a folder. shown: their location in tracebacks.

    None of their code runs. Files that are not Python of this version stay as they are: some packages have some.
    """
    options = ("-q", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")
    _run(
        [base_python(), "-I", "-S", "-m", "compileall", *options, "-s", str(site), "-p", shown, str(site)],
        site,
        progress,
        "",
    )


def _run(command: Sequence[str], folder: Path, progress: Progress, given: str) -> tuple[int, str, str]:
    """Status, output, and the last lines of standard error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED)}
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output:
        source.write(given.encode())
        source.seek(0)
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdin=source, stdout=output, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None, "it was asked for"
            try:
                for line in process.stderr:
                    if text := line.decode("utf-8", "replace").strip():
                        last.append(text)
                        progress(text)
            except BaseException:
                process.kill()
                raise
            status = process.wait()
        output.seek(0)
        return status, output.read().decode("utf-8", "replace"), "; ".join(last)
