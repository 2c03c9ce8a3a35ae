"""A client with generated stubs and gRPC only, without cenote: the program of the docs, as printed there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.gateway.world import World

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "other-languages.md").read_text()
PROGRAM, SHOWN = re.findall(r"^```(?:py|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

ALONE = """
import sys
ours = ("cenote", "cenote_worker", "cenote_security")
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ours:
            raise ImportError(f"{name} is not there in another language")
sys.meta_path.insert(0, Absent())
exec(compile(open(sys.argv[1]).read(), "program", "exec"), {"__name__": "__main__"})
"""


@pytest.mark.slow
@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])
def test_the_program_of_the_docs(tmp_path: Path, relayed: bool) -> None:
    """Creates a runtime without a policy, puts JSON and an Arrow table in, runs a cell, and reads both back."""
    world = World(tmp_path, relayed=relayed)
    try:
        token = world.user("acme").token
        (tmp_path / "program.py").write_text(PROGRAM)
        done = subprocess.run(
            [sys.executable, "-c", ALONE, tmp_path / "program.py"],
            env={"CENOTE_ADDRESS": world.address, "CENOTE_TOKEN": token, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=90,
        )
    finally:
        world.close()
    assert (SHOWN, 0) == (done.stdout, done.returncode), done.stderr
