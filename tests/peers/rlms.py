"""Runs rlms' own tests of its local REPL with Cenote's REPL in its place.

    git clone https://github.com/alexzhang13/rlm
    python -m tests.peers.rlms rlm [pytest arguments]

The tests are run unchanged, in the environment of the adapter (`python -m tests.peers.adapters rlms` makes it).
`docs/doors.md` says how many pass, and why the others do not. Exit status: that of pytest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent

SUITE: Final = (
    "tests/test_local_repl.py",
    "tests/test_local_repl_persistent.py",
    "tests/test_multi_turn_integration.py",
    "tests/test_rlm_query.py",
    "tests/test_subcall.py",
    "tests/repl",
)


def pytest_configure(config: Any) -> None:
    """This module is also the plugin that puts one class in the place of the other."""
    import rlm.environments
    import rlm.environments.local_repl

    from cenote.adapters.rlms import CenoteREPL

    rlm.environments.LocalREPL = rlm.environments.local_repl.LocalREPL = CenoteREPL


def main() -> int:
    from tests.peers.adapters import environment

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="rlms' repository")
    options, more = parser.parse_known_args()
    if not (options.folder / "tests").is_dir():
        parser.error(f"{options.folder} has no folder `tests`")
    command = [environment("rlms"), "-m", "pytest", "-p", "rlms", "-p", "no:cacheprovider"]
    command += ["-q", "--timeout", "60", "-W", "ignore", *(more or SUITE)]
    environ = {**os.environ, "PYTHONPATH": str(HERE)}
    return subprocess.run(command, env=environ, cwd=options.folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
