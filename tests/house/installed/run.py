"""Builds the wheel, installs it with each extra alone in a separate environment, and tests it there.

The base is also tested with each other Python that Cenote supports, if installed.

    python -m tests.house.installed.run [EXTRA...]     e.g. base platform; all by default

Run it from the root of the repository, in an environment that has hatchling and pip. It prints the disk size of
each installation. Exit status 1: a check fails, or the base has more packages than its goal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.house.installed.smoke import CHECKS

ROOT = Path(__file__).resolve().parents[3]

MOST_BYTES = 100 * 10**6
MOST_PACKAGES = 20
"""Of the base, with Cenote itself and compiled."""


PYTHONS = ("python3.11", "python3.12", "python3.13")


def main(extras: list[str]) -> int:
    wanted = [(extra, sys.executable) for extra in extras or CHECKS]
    if "base" in (extras or CHECKS):
        wanted += [("base", python) for python in PYTHONS if _is_another(python)]
    with tempfile.TemporaryDirectory(prefix="cenote-installed-") as folder:
        wheel = _built(Path(folder))
        tried = [
            _tried(extra, python, wheel, Path(folder) / f"{extra}-{number}")
            for number, (extra, python) in enumerate(wanted)
        ]
    return max(tried)


def _is_another(python: str) -> bool:
    """A command may exist and start nothing, as pyenv's do."""
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if python == here or shutil.which(python) is None:
        return False
    asked = subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False)
    return asked.returncode == 0


def _built(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _tried(extra: str, interpreter: str, wheel: Path, folder: Path) -> int:
    begun = time.monotonic()
    environment = folder / "environment"
    # without pip, which is not part of the measurement
    subprocess.run([interpreter, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    wanted = str(wheel) if extra == "base" else f"{wheel}[{extra}]"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-q",
        "--no-warn-script-location",
        wanted,
    ]
    subprocess.run(install, check=True)
    size, packages = _measured(environment)
    installed = time.monotonic()
    done = subprocess.run(
        [python, "-m", "tests.house.installed.smoke", extra], cwd=folder, env=_places(folder)
    )
    small = extra != "base" or (size <= MOST_BYTES and packages <= MOST_PACKAGES)
    print(
        f"{extra:12}{_version(python)}{size / 1e6:6.0f} MB{packages:4} packages   "
        f"installed in {installed - begun:3.0f} s, tried in {time.monotonic() - installed:3.0f} s   "
        + ("works" if done.returncode == 0 else "DOES NOT WORK")
        + ("" if small else f", and is above {MOST_BYTES / 1e6:.0f} MB or {MOST_PACKAGES} packages"),
        flush=True,
    )
    return int(done.returncode != 0 or not small)


def _version(python: Path) -> str:
    asked = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)
    return asked.stdout.removeprefix("Python ").strip()


def _measured(environment: Path) -> tuple[int, int]:
    """Bytes on disk, and number of distributions."""
    site = next(environment.glob("lib/python*/site-packages"))
    size = sum(path.lstat().st_blocks * 512 for path in site.rglob("*"))
    return size, len([*site.glob("*.dist-info")])


def _places(folder: Path) -> dict[str, str]:
    """The checks come from this folder; the tested code, from the environment alone."""
    own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "STATE", "DATA")}
    given = {name: value for name, value in os.environ.items() if not name.startswith(("CENOTE_", "PYTHON"))}
    return given | own | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
