"""The operator of a platform that builds environments, with separate folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.cluster.standing import living_in
from tests.support.processes import title

import cenote
from cenote.connection import Platform


class Operator:
    """`cenote` of one operator. The rest is of the platform that it has started."""

    def __init__(self, folder: Path, environments: Path) -> None:
        self._state = folder / "STATE"
        own = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG")}
        given = {name: text for name, text in os.environ.items() if not name.startswith("CENOTE_")}
        self.variables = given | own | {"CENOTE_ENVIRONMENTS": str(environments)}
        self.address, self.http, self.token, self.pid = "", "", "", 0

    def __call__(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "cenote.cli.main", *words]
        return subprocess.run(line, env=self.variables | more, capture_output=True, text=True, timeout=200)

    def up(self, *words: str) -> Platform:
        done = self("up", "--port", "0", "--json", *words)
        assert 0 == done.returncode, done.stderr
        said = json.loads(done.stdout)
        self.address, self.http = said["address"], said.get("http", "")
        self.pid = said["pid"]
        self.token = Path(said["token_file"]).read_text().strip()
        return cenote.connect(self.address, self.token)

    def tenant(self, name: str) -> Platform:
        """A connection of another tenant."""
        done = self("tenant", "create", name)
        assert 0 == done.returncode, done.stderr
        made = self("token", "create", name)
        assert 0 == made.returncode, made.stderr
        return cenote.connect(self.address, made.stdout.strip())

    def processes(self, kind: str) -> list[int]:
        """Processes of its cluster whose title has this prefix."""
        cluster = json.loads((self._state / "cenote" / "cluster.json").read_text())
        return [pid for pid in living_in(cluster["pid"]) if title(pid).startswith(kind)]
