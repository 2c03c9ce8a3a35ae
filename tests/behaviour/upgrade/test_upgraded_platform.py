"""A platform of 0.1.0 that was killed at work goes on in this version, on the folder that it left."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SCHEMA_OF_0_1_0 = 7
"""The latest schema of a gateway's database that 0.1.0 opens."""

Finished = subprocess.CompletedProcess[str]


class UpgradedUser:
    """The command of a user who has these folders. folder: has `state` and `config`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: text for name, text in os.environ.items() if not name.startswith("CENOTE_")}
        self.environment = kept | {
            f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("state", "config")
        }

    def __call__(self, *arguments: str, token: str = "") -> Finished:
        """token: a file of the folder."""
        given = {"CENOTE_TOKEN": (self.folder / token).read_text()} if token else {}
        return subprocess.run(
            [sys.executable, "-m", "cenote.cli.main", *arguments],
            env=self.environment | given,
            capture_output=True,
            text=True,
        )

    def printed(self, *arguments: str, token: str = "") -> str:
        done = self(*arguments, token=token)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    def database(self, question: str, values: Sequence[float] = ()) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.folder / "state" / "cenote" / "gateway.db") as connection:
            return list(connection.execute(question, values))


@pytest.fixture(scope="module")
def user(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpgradedUser]:
    """Of the platform, which this version has taken over."""
    folder = tmp_path_factory.mktemp("upgraded") / "platform"
    shutil.copytree(release / "platform", folder)
    user = UpgradedUser(folder)
    assert [(SCHEMA_OF_0_1_0,)] == user.database("SELECT version FROM schema_version")
    assert "the record is as it was written" in user.printed("audit", "verify")
    user.database("UPDATE jobs SET ended = ? WHERE ended > 0", [time.time()])  # else it is too old to be kept
    user.printed("up", "--without-ray", "--port", "0", "--no-http")
    yield user
    user("down")


pytestmark = pytest.mark.slow


def test_tenants_tokens_and_quotas_are_kept(user: UpgradedUser) -> None:
    assert "runtimes <= 4" in user.printed("tenant", "ls")
    assert user("runtime", "ls", token="token").returncode == 0
    refused = user("runtime", "ls", token="revoked")
    assert (3, True) == (refused.returncode, "revoked" in refused.stderr)


def test_durable_runtimes_wake_with_their_record(user: UpgradedUser) -> None:
    """One that slept, and one that was awake when all was killed. One that was not durable is lost, and says so."""
    asked = '[e.n for e in entries], values.tolist(), open("f.txt").read()'
    assert "([1, 2, 3], [0, 1, 2, 3], 'kept')" in user.printed(
        "runtime", "exec", "ledger", "-c", asked, token="token"
    )
    assert "entries.append(Entry(3))" in user.printed("runtime", "history", "ledger", token="token")
    assert "42" in user.printed("runtime", "exec", "awake", "-c", "x", token="token")
    lost = user("runtime", "exec", "passing", "-c", "y")
    assert "this runtime is lost" in lost.stderr


def test_jobs_and_teams_go_on(user: UpgradedUser) -> None:
    """What was over is not done again; the task that was under way begins again, and says so."""
    good, bad = map(json.loads, user("job", "results", "finished", token="token").stdout.splitlines())
    assert (42, "ZeroDivisionError", 1) == (good["value"], bad["error"]["type"], bad["attempts"])
    assert "1 succeeded, 1 failed" in user.printed("job", "show", "finished", token="token")
    assert "ZeroDivisionError" in user.printed("job", "logs", "finished", "bad", token="token")
    assert "3 succeeded" in user.printed("job", "wait", "interrupted", token="token")
    results = [
        json.loads(line) for line in user.printed("job", "results", "interrupted", token="token").splitlines()
    ]
    assert [(1, 1, 0), (2, 2, 1), (3, 1, 0)] == [
        (each["value"], each["attempts"], each["lost"]) for each in results
    ]
    assert "It is 42." in user.printed("team", "show", "pair", token="token")
    assert "It is 42." in user("team", "run", "pair", "Once more", token="token").stdout


def test_the_audit_log_goes_on(user: UpgradedUser) -> None:
    """One chain over both versions."""
    assert "the record is as it was written" in user.printed("audit", "verify")
    kinds = [line.split()[2] for line in user.printed("audit", "show").splitlines()]
    assert {"tenant", "token", "cell"} <= set(kinds)


def test_a_backup_of_it_is_restored(user: UpgradedUser, tmp_path: Path) -> None:
    user.printed("backup", str(tmp_path / "backup"))
    assert "can be restored" in user.printed("restore", "--check", str(tmp_path / "backup"))


def test_0_1_0_refuses_it_from_here_on(user: UpgradedUser) -> None:
    """By the version of the database, which that release compares."""
    ((version,),) = user.database("SELECT version FROM schema_version")
    assert isinstance(version, int)
    assert version > SCHEMA_OF_0_1_0
