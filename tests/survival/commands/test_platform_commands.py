"""`cenote up`, `down`, `status`, `runtime`, `tenant`, `token` and `audit`, over platforms without Ray.

Platforms are separate processes; commands run in this one, except where a process makes a difference.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.house.deploy.test_monitoring import QUERIES
from tests.support.commands.fixtures import carried_out
from tests.support.processes import runs
from tests.waiting import until

from cenote.cli.main import build_parser
from cenote.cli.platform.runtime import _table
from cenote.cli.platform.up import options_from
from cenote.gateway.process.daemon_lock import DaemonLock, Running, died_at, running_at
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.values.quota import Quota
from cenote.terminal.screen import Screen
from cenote_worker.wire.channels import ENVIRONMENT

Finished = subprocess.CompletedProcess[str]
Cenote = Callable[..., Finished]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Cenote]:
    """The command of a user whose folders are in this one."""

    def user(folder: Path) -> Cenote:
        for name in [name for name in os.environ if name.startswith("CENOTE_")]:
            monkeypatch.delenv(name)
        for name, path in homes(folder).items():
            monkeypatch.setenv(name, path)

        def run(*arguments: str, **environment: str) -> Finished:
            with monkeypatch.context() as patched:
                for name, value in environment.items():
                    patched.setenv(name, value)
                return carried_out(arguments, capsys)

        return run

    return user


def homes(folder: Path) -> dict[str, str]:
    return {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("state", "config")}


@pytest.fixture
def at_home(home: Callable[[Path], Cenote], tmp_path: Path) -> Iterator[Cenote]:
    """The command of a user with separate folders. Platforms that they start are ended."""
    run = home(tmp_path)
    yield run
    run("down")


@pytest.fixture(scope="module")
def standing_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a platform on which the tests of this file leave only records."""
    folder = tmp_path_factory.mktemp("standing")
    command = [sys.executable, "-m", "cenote.cli.main"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CENOTE_")}
    environment |= homes(folder)
    subprocess.run([*command, "up", "--without-ray", "--port", "0"], env=environment, check=True)
    yield folder
    subprocess.run([*command, "down"], env=environment, check=True)


@pytest.fixture
def standing(home: Callable[[Path], Cenote], standing_folder: Path) -> Cenote:
    """The command of a user whose platform runs, and continues after the test."""
    return home(standing_folder)


@pytest.fixture
def up(at_home: Cenote) -> Cenote:
    """The same, with a platform."""
    done = at_home("up", "--without-ray", "--port", "0")
    assert (0, "") == (done.returncode, done.stderr)
    return at_home


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return StateFolder(path=tmp_path / "state" / "cenote")


@pytest.mark.slow
def test_up_says_how_to_connect_and_down_leaves_nothing(at_home: Cenote, cenote: Cenote) -> None:
    """Ready when the command returns; one platform at a time; gone when `down` returns."""
    started = json.loads(cenote("up", "--without-ray", "--port", "0", "--json").stdout)
    told = at_home("status", CENOTE_ADDRESS=started["address"])
    assert (0, True) == (told.returncode, started["address"] in told.stdout)
    variables = Path(f"/proc/{started['pid']}/environ").read_text()
    assert all(f"{name}=" in variables for name in ENVIRONMENT)
    again = at_home("up")
    assert (4, True) == (again.returncode, f"pid {started['pid']}" in again.stderr)
    ended = {"ended": True, "pid": started["pid"], "forced": False}
    assert ended == json.loads(at_home("down", "--json").stdout)
    assert not runs(started["pid"])
    assert 4 == at_home("status").returncode
    assert "no platform runs here\n" == at_home("down").stdout


@pytest.mark.slow
def test_an_interrupted_up_leaves_no_platform(at_home: Cenote, state: StateFolder) -> None:
    """After a shell has its prompt back, `status` is correct."""
    command = [sys.executable, "-m", "cenote.cli.main", "up", "--without-ray", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as starting:
        until(lambda: running_at(state.watch) is not None)
        starting.send_signal(signal.SIGINT)
        _, told = starting.communicate()
    assert (130, "cenote: interrupted\n") == (starting.returncode, told)
    assert (None, None) == (running_at(state.watch), running_at(state.lock))
    assert "no platform runs here\n" == at_home("down").stdout


@pytest.mark.slow
def test_an_up_whose_platform_is_ended_meanwhile_says_so(at_home: Cenote, state: StateFolder) -> None:
    """By `down` in another terminal: the command does not print where it would have listened."""
    command = [sys.executable, "-m", "cenote.cli.main", "up", "--without-ray", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as starting:
        until(lambda: running_at(state.watch) is not None)
        assert 0 == at_home("down").returncode
        told, error = starting.communicate()
    assert (4, "") == (starting.returncode, told)
    assert "told to end before it was ready" in error
    assert (None, None) == (running_at(state.watch), running_at(state.lock))


@pytest.mark.slow
def test_a_platform_that_was_killed_comes_back(at_home: Cenote, state: StateFolder) -> None:
    """Whatever is left in its files, the next one starts at the same addresses and reports the loss."""
    started = json.loads(at_home("up", "--without-ray", "--port", "0", "--json").stdout)
    at_home("runtime", "create", "etl")
    os.kill(started["pid"], signal.SIGKILL)
    # A process holds its locks until its last thread has ended, which may be after it is no longer seen as running.
    while (again := running_at(state.lock)) is None or again.pid == started["pid"] or not again.address:
        time.sleep(0.01)
    assert (started["address"], started["http"]) == (again.address, again.http)
    (lost,) = json.loads(at_home("runtime", "ls", "--json").stdout)
    assert ("etl", "lost") == (lost["name"], lost["state"])
    assert {"ended": True, "pid": again.pid, "forced": False} == json.loads(at_home("down", "--json").stdout)
    assert (None, None) == (running_at(state.watch), running_at(state.lock))


@pytest.mark.slow
def test_a_platform_killed_with_its_watcher_is_gone(up: Cenote, state: StateFolder) -> None:
    """The next platform finds its files; no other one has started in the meantime."""
    for lock in (state.watch, state.lock):
        running = running_at(lock)
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)
        while runs(running.pid):
            time.sleep(0.01)
    # A process that it was just starting holds its lock until it has started.
    until(lambda: running_at(state.lock) is None)
    died = up("runtime", "ls", "--wait", "0")
    assert (4, True) == (died.returncode, "died, and nothing has started it again" in died.stderr)
    assert "no platform runs here\n" == up("down").stdout
    assert 0 == up("up", "--without-ray", "--port", "0").returncode


@pytest.mark.slow
def test_down_ends_a_platform_that_is_started_again(up: Cenote, state: StateFolder) -> None:
    """Also between two of its processes."""
    running, watcher = running_at(state.lock), running_at(state.watch)
    assert running is not None
    assert watcher is not None
    os.kill(running.pid, signal.SIGKILL)
    up("down")
    assert not runs(watcher.pid)
    assert (None, None) == (running_at(state.watch), running_at(state.lock))


def test_a_platform_that_is_not_ready_yet_is_said(at_home: Cenote, state: StateFolder) -> None:
    """As between two processes of one platform: it has no address at that time."""
    state.make()
    lock = DaemonLock(state.lock)
    lock.write(Running(pid=os.getpid(), since=0.0))
    done = at_home("runtime", "ls", "--wait", "0")
    lock.release()
    assert 4 == done.returncode
    assert "is being started, or started again; try again in a moment" in done.stderr


@pytest.mark.slow
def test_a_command_waits_for_a_platform_that_comes_back(at_home: Cenote, state: StateFolder) -> None:
    """After a crash, automatically, with a message. It does not wait for one that was ended or never existed."""
    never = at_home("runtime", "ls", "--wait", "60")
    assert (4, True) == (never.returncode, "start one with `cenote up`" in never.stderr)
    assert 0 == at_home("up", "--without-ray", "--port", "0").returncode
    holders = [running_at(lock) for lock in (state.watch, state.lock)]
    for each in holders:
        assert each is not None
        os.kill(each.pid, signal.SIGKILL)
    until(lambda: died_at(state.lock))
    command = [sys.executable, "-m", "cenote.cli.main", "runtime", "ls", "--wait", "60"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CENOTE_")}
    with subprocess.Popen(
        command, env=environment | homes(state.path.parent.parent), stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr is not None
        said = waiting.stderr.readline()
        assert "the platform here does not answer (it died); waiting for it, " in said
        assert 0 == at_home("up", "--without-ray", "--port", "0").returncode
        assert 0 == waiting.wait()
    at_home("down")
    ended = at_home("runtime", "ls", "--wait", "60")
    assert (4, True) == (ended.returncode, "was ended; `cenote up` has it again" in ended.stderr)


@pytest.mark.slow
def test_a_port_that_is_taken_is_said(at_home: Cenote) -> None:
    """With the remedy; no process remains."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = at_home("up", "--without-ray", "--port", str(other.getsockname()[1]))
    assert 4 == done.returncode
    assert "the port is taken" in done.stderr
    assert "--port" in done.stderr
    assert "no platform runs here\n" == at_home("down").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "status", "said"),
    [("/proc/nowhere", 4, "cannot be used"), ("foo://x", 2, "is no store that can be used")],
)
def test_a_store_that_cannot_be_is_said(at_home: Cenote, store: str, status: int, said: str) -> None:
    """To the operator who starts the platform, and not to each of its users."""
    done = at_home("up", "--without-ray", "--port", "0", "--store", store)
    assert (status, True) == (done.returncode, said in done.stderr)
    assert "no platform runs here\n" == at_home("down").stdout


def test_what_an_operator_preloads_comes_on_top() -> None:
    """Clients with default settings request numpy and pandas, and are not refused for it."""
    arguments = build_parser().parse_args(["up", "--preload", "sklearn", "--preload", "numpy"])
    assert ("numpy", "pandas", "sklearn") == options_from(arguments).preloads


def test_a_runtime_keeps_its_state_between_commands(standing: Cenote) -> None:
    """Made, used by two processes, listed, shown, removed."""
    assert 0 == standing("runtime", "create", "etl", "--memory", "256MiB").returncode
    assert "" == standing("runtime", "exec", "etl", "-c", "x = 6").stdout
    done = standing("runtime", "exec", "etl", "-c", "print('out'); x * 7")
    assert (0, "out\n42\n") == (done.returncode, done.stdout)
    (listed,) = json.loads(standing("runtime", "ls", "--json").stdout)
    assert ("etl", "ready", 2) == (listed["name"], listed["state"], listed["steps"])
    assert ["last", "step"] == standing("runtime", "ls").stdout.split()[2:4]
    shown = json.loads(standing("runtime", "show", "etl", "--json").stdout)
    assert (256 << 20, listed["id"]) == (shown["policy"]["memory"], shown["id"])
    assert "capability" not in shown
    assert "memory           256 MiB\n" in standing("runtime", "show", "etl").stdout
    assert 0 == standing("runtime", "rm", "etl").returncode
    gone = standing("runtime", "exec", "etl", "-c", "1")
    assert (2, True) == (gone.returncode, "there is no runtime 'etl'" in gone.stderr)


@pytest.mark.slow
def test_exec_ends_as_exec_does(standing: Cenote) -> None:
    """1 for code that fails, with its own frames; 2 for a usage error; 4 if no platform answers."""
    standing("runtime", "create", "etl")
    failed = standing("runtime", "exec", "etl", "-c", "1 / 0")
    assert (1, True) == (failed.returncode, "ZeroDivisionError" in failed.stderr)
    assert 2 == standing("runtime", "exec", "etl", "no-such-file.py").returncode
    assert 4 == standing("runtime", "ls", "--address", "127.0.0.1:9").returncode
    assert 0 == standing("runtime", "rm", "etl").returncode


def test_exec_shows_what_it_cannot_keep(standing: Cenote) -> None:
    """The cell ran: its result is shown, then a note that it is not durable."""
    standing("tenant", "limit", "default", "stored", "1")
    made = standing("runtime", "create", "ledger", "--durable")
    assert 0 == made.returncode, made.stderr
    done = standing("runtime", "exec", "ledger", "-c", "print('out'); 6 * 7")
    assert (1, "out\n42\n") == (done.returncode, done.stdout), done.stderr
    assert "it was done and is not durable" in done.stderr
    standing("tenant", "limit", "default", "stored", "none")
    assert 0 == standing("runtime", "rm", "ledger").returncode


def test_a_token_that_is_not_good_is_status_3(standing: Cenote) -> None:
    """The platform runs and refuses."""
    done = standing("status", CENOTE_TOKEN="wrong")
    assert (3, True) == (done.returncode, "token" in done.stderr)


def test_health_checks_take_no_token(standing: Cenote) -> None:
    """A revoked token reveals nothing about the platform; each question has its message and status."""
    for arguments, told in ((("--live",), "alive\n"), (("--ready",), "ready\n")):
        done = standing("status", *arguments, CENOTE_TOKEN="wrong")
        assert (0, told) == (done.returncode, done.stdout.partition("  ")[0])
    assert {"live": True} == json.loads(standing("status", "--live", "--json").stdout)
    assert json.loads(standing("status", "--ready", "--json").stdout)["ready"]
    assert 2 == standing("status", "--ready", "--live").returncode


@pytest.mark.slow
def test_a_platform_that_cannot_be_used_says_why(up: Cenote, state: StateFolder) -> None:
    """Alive, 1 for not ready, and the cause as a message."""
    state.store.rename(state.path / "elsewhere")
    until(lambda: up("status", "--ready").returncode == 1)
    gone = "store: the folder of the store of durable runtimes is gone; put it back"
    assert f"not ready\n  {gone}" in up("status", "--ready").stdout
    assert gone in up("status").stdout
    assert 0 == up("status", "--live").returncode
    (state.path / "elsewhere").rename(state.store)
    up("down")
    assert [4, 4] == [up("status", asked).returncode for asked in ("--live", "--ready")]


@pytest.mark.slow
def test_a_script_moves_to_the_platform_by_its_address(standing: Cenote, cenote: Cenote) -> None:
    """CENOTE_ADDRESS is enough: the token is where `cenote up` left it."""
    address = json.loads(standing("status", "--json").stdout)["address"]
    assert "42\n" == cenote("exec", "-c", "6 * 7", CENOTE_ADDRESS=address).stdout


@pytest.mark.slow
def test_tls_is_one_flag(at_home: Cenote) -> None:
    """The platform makes its certificates, commands here trust them, and clients that do not are refused."""
    up = ("up", "--without-ray", "--port", "0", "--tls", "--host", "0.0.0.0", "--json")
    started = json.loads(at_home(*up).stdout)
    port = started["address"].rpartition(":")[2]
    assert [f"localhost:{port}", f"{socket.gethostname()}:{port}"] == [
        started["address"],
        started["elsewhere"],
    ]
    assert json.loads(at_home("status", "--json").stdout)["tls"]
    environment = {"CENOTE_ADDRESS": started["address"], "CENOTE_CA": started["authority"]}
    assert "42\n" == at_home("exec", "-c", "6 * 7", **environment).stdout
    assert 4 == at_home("status", CENOTE_ADDRESS=started["address"]).returncode


def test_nothing_listens_to_others_in_the_clear(at_home: Cenote) -> None:
    """Outside the loopback interface TLS is required."""
    done = at_home("up", "--without-ray", "--host", "0.0.0.0", "--port", "0")
    assert (2, True) == (done.returncode, "--tls" in done.stderr)


@pytest.mark.slow
def test_the_operator_makes_tenants_and_tokens(standing: Cenote) -> None:
    """While the platform runs: a new token works at once, a limit applies, a revoked or closed one is refused."""
    assert 0 == standing("tenant", "create", "acme").returncode
    assert "acme: memory <= 100 MiB\n" == standing("tenant", "limit", "acme", "memory", "100MiB").stdout
    assert "acme: cpus <= 2.5 CPUs\n" == standing("tenant", "limit", "acme", "cpus", "2.5").stdout
    assert "open  cpus <= 2.5 CPUs, memory <= 100 MiB" in standing("tenant", "ls").stdout
    token = standing("token", "create", "acme", "--note", "for tests").stdout.strip()
    told = json.loads(standing("status", "--json", CENOTE_TOKEN=token).stdout)
    assert ("acme", []) == (told["tenant"], told["nodes"])
    refused = standing("runtime", "create", "etl", CENOTE_TOKEN=token)
    assert (3, True) == (refused.returncode, "0 B of 100 MiB are taken, 2 GiB more" in refused.stderr)
    beyond = standing("runtime", "create", "etl", "--memory", "900TiB")
    assert (2, True) == (
        beyond.returncode,
        "a jail of 900 TiB was asked for, and this machine has" in beyond.stderr,
    )
    (listed,) = json.loads(standing("token", "ls", "acme", "--json").stdout)
    assert ("good", "for tests") == (listed["state"], listed["note"])
    newer = standing("token", "rotate", "acme", listed["id"]).stdout.strip()
    assert 0 == standing("token", "revoke", "acme", listed["id"]).returncode
    assert (3, 0) == tuple(standing("status", CENOTE_TOKEN=each).returncode for each in (token, newer))
    assert 0 == standing("tenant", "close", "acme").returncode
    assert 3 == standing("status", CENOTE_TOKEN=newer).returncode
    tenants = json.loads(standing("tenant", "ls", "--json").stdout)
    assert {"acme": False, "default": True}.items() <= {
        each["name"]: each["open"] for each in tenants
    }.items()


@pytest.mark.slow
def test_each_quota_may_be_limited(standing: Cenote) -> None:
    """In its units; an invalid limit is refused with the correct form."""
    assert 0 == standing("tenant", "create", "bounded").returncode
    for quota in Quota:
        assert 0 == standing("tenant", "limit", "bounded", quota, "2").returncode
        for wrong in ("some", "-1", "1e400"):
            refused = standing("tenant", "limit", "bounded", "--", quota, wrong)
            assert (2, True) == (refused.returncode, f"{quota} is a " in refused.stderr)
    (limits,) = [
        each["limits"]
        for each in json.loads(standing("tenant", "ls", "--json").stdout)
        if each["name"] == "bounded"
    ]
    assert {quota.value: 2000 if quota is Quota.CPUS else 2 for quota in Quota} == limits
    token = standing("token", "create", "bounded").stdout.strip()
    assert 0 == standing("tenant", "limit", "bounded", "runtimes", "0").returncode
    refused = standing("runtime", "create", "etl", CENOTE_TOKEN=token)
    assert (3, True) == (refused.returncode, "quota" in refused.stderr)
    assert 0 == standing("tenant", "close", "bounded").returncode


def test_the_operators_own_token_is_rotated_where_it_lies(standing: Cenote) -> None:
    """Its commands, and health checks, continue when the former one expires."""
    (own,) = [
        each for each in json.loads(standing("token", "ls", "default", "--json").stdout) if each["note"]
    ]
    done = standing("token", "rotate", "default", own["id"])
    assert "instead of the former one" in done.stderr
    assert 0 == standing("token", "revoke", "default", own["id"]).returncode
    assert 0 == standing("status").returncode


@pytest.mark.slow
def test_the_record_is_verified(up: Cenote, tmp_path: Path) -> None:
    """It is valid while the platform writes it, including the operator's actions; not after a changed letter."""
    up("runtime", "create", "etl")
    up("token", "create", "default")
    assert 0 == up("audit", "verify").returncode
    up("down")
    up("up", "--without-ray", "--port", "0")  # it has seen the actions since it last looked
    up("down")
    (log,) = (tmp_path / "state" / "cenote" / "audit").glob("*.jsonl")
    assert 2 == log.read_bytes().count(b'"change":"issued"')
    log.write_bytes(log.read_bytes().replace(b'"name":"etl"', b'"name":"abc"'))
    done = up("audit", "verify", "--json")
    assert (1, True) == (done.returncode, json.loads(done.stdout)["broken"]["number"] > 0)


@pytest.mark.slow
def test_the_record_is_shown(standing: Cenote) -> None:
    """The actions, as lines or as JSON; of one tenant, of one runtime, of the last hour."""
    assert 0 == standing("runtime", "create", "shown").returncode
    assert 0 == standing("runtime", "exec", "shown", "-c", "print(6 * 70)").returncode

    def shown() -> list[dict[str, Any]]:
        lines = standing("audit", "show", "--json", "--since", "1h").stdout.splitlines()
        entries = [json.loads(line)["event"] for line in lines]
        return [entry for entry in entries if entry["facts"].get("first_line") == "print(6 * 70)"]

    until(shown)  # the platform collects the records of its machines
    (cell,) = shown()
    assert ("cell", 4) == (cell["kind"], cell["facts"]["output_bytes"])
    about = standing("audit", "show", "--runtime", cell["runtime"], "--tenant", "default").stdout
    assert 1 == about.count("first_line='print(6 * 70)'")
    assert "" == standing("audit", "show", "--since", "2999-01-01T00:00Z").stdout
    assert 2 == standing("audit", "show", "--since", "yesterday").returncode
    assert 0 == standing("runtime", "rm", "shown").returncode


@pytest.mark.slow
def test_the_record_is_followed_limited_and_exported(standing: Cenote, standing_folder: Path) -> None:
    """By names of a tenant or a runtime, including a runtime that is gone."""
    assert 0 == standing("runtime", "create", "exported").returncode
    assert 0 == standing("runtime", "rm", "exported").returncode

    def about(*more: str) -> list[str]:
        return standing("audit", "show", "--runtime", "exported", *more).stdout.splitlines()

    until(lambda: any("runtime.removed" in line for line in about()))
    lines = about()
    assert "runtime.created" in lines[0]
    assert all("(default)" in line and "(exported)" in line for line in lines)
    assert lines[-1:] == about("--limit", "1")
    assert 2 == standing("audit", "show", "--limit", "0").returncode
    rows = [
        json.loads(line) for line in standing("audit", "export", "--runtime", "exported").stdout.splitlines()
    ]
    assert len(lines) == len(rows)
    assert {("default", "exported")} == {(row["tenant_name"], row["runtime_name"]) for row in rows}
    table = standing_folder / "log.csv"
    csv_options = ("--format", "csv", "--output", str(table), "--until", "2999-01-01T00:00Z")
    assert 0 == standing("audit", "export", "--runtime", "exported", *csv_options).returncode
    with table.open(newline="") as file:
        assert [row["number"] for row in csv.DictReader(file)] == [str(row["number"]) for row in rows]
    command = [sys.executable, "-m", "cenote.cli.main", "audit", "show", "--follow", "--limit", "1"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CENOTE_")}
    with subprocess.Popen(
        command, env=environment | homes(standing_folder), stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline()
        assert 0 == standing("runtime", "create", "followed").returncode
        assert any("(followed)" in line for line in following.stdout)
        following.send_signal(signal.SIGINT)
        assert 130 == following.wait()
    assert 0 == standing("runtime", "rm", "followed").returncode


def test_operators_commands_need_a_platform(at_home: Cenote) -> None:
    """Where none has run the command fails, and no platform is made."""
    for arguments in (("tenant", "ls"), ("token", "ls", "default"), ("audit", "verify"), ("audit", "show")):
        done = at_home(*arguments)
        assert (4, True) == (done.returncode, "cenote up" in done.stderr)


def test_a_list_has_the_reason_of_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    """If none is lost, there is no such column."""
    there = {
        "name": "a",
        "state": "ready",
        "steps": 1,
        "clients": 0,
        "created": "now",
        "parent": "",
        "id": "rt_1",
    }
    _table([{**there, "reason": ""}], Screen())
    assert "reason" not in capsys.readouterr().out
    _table(
        [{**there, "reason": ""}, {**there, "state": "lost", "reason": "its machine was stopped"}], Screen()
    )
    title, _, lost = capsys.readouterr().out.splitlines()
    assert title.endswith("reason")
    assert lost.endswith("its machine was stopped")


def test_logs_and_top_show_what_runs(standing: Cenote) -> None:
    """In a pipe `top` looks once. A runtime of a name has its events, the last ones first where there is a limit."""
    assert standing("runtime", "create", "seen", "--memory", "256MiB").returncode == 0
    try:
        assert standing("runtime", "exec", "seen", "-c", "1 / 0").returncode == 1
        top = standing("top")
        assert (0, True) == (top.returncode, top.stdout.startswith("ready   "))
        (row,) = (line.split() for line in top.stdout.splitlines() if line.startswith("seen "))
        assert ["seen", "ready", "1"] == row[:3]
        assert any(
            each["name"] == "seen" for each in json.loads(standing("top", "--json").stdout)["runtimes"]
        )

        def cells() -> list[dict[str, Any]]:
            lines = standing("logs", "--runtime", "seen", "--json").stdout.splitlines()
            return [event for event in map(json.loads, lines) if event["event"] == "cell"]

        (cell,) = until(cells)
        assert ("audit", "seen", 1, "ZeroDivisionError") == tuple(
            cell[name] for name in ("source", "runtime_name", "step", "error")
        )
        assert len(standing("logs", "--limit", "2").stdout.splitlines()) == 2
        assert "the platform is ready" in standing("logs").stdout
        assert standing("logs", "--runtime", "seen", "--level", "error").stdout == ""
    finally:
        standing("runtime", "rm", "seen")


def test_logs_need_a_platform(at_home: Cenote) -> None:
    done = at_home("logs")
    assert (4, True) == (done.returncode, "`cenote up` starts one" in done.stderr)


@pytest.mark.slow
def test_a_backup_of_a_running_platform_is_restored_elsewhere(
    up: Cenote, home: Callable[[Path], Cenote], tmp_path: Path
) -> None:
    """Through the commands; the state is there, the log verifies, and both platforms have it on record."""
    assert up("runtime", "create", "ledger", "--durable", "--memory", "256MiB").returncode == 0
    assert up("runtime", "exec", "ledger", "-c", "x = 41").returncode == 0
    file = str(tmp_path / "backup")
    made = json.loads(up("backup", file, "--json").stdout)
    assert (1, 1, []) == (made["runtimes"], made["stored"], made["without_state"])
    assert Path(file).stat().st_mode & 0o777 == 0o600
    assert up("backup", file).returncode == 2
    assert up("restore", "--check", file).returncode == 0
    assert up("restore", file).returncode == 2
    assert until(lambda: "platform.backed_up" in up("audit", "show").stdout)
    other = home(tmp_path / "other")
    try:
        assert other("restore", file).returncode == 0
        assert other("audit", "verify").returncode == 0
        assert other("up", "--without-ray", "--port", "0").returncode == 0
        assert "42" in other("runtime", "exec", "ledger", "-c", "x + 1").stdout
        assert until(lambda: "platform.restored" in other("logs").stdout)
        assert other("audit", "verify").returncode == 0
    finally:
        other("down")
        home(tmp_path)


@pytest.mark.slow
def test_alerts_and_dashboard_ask_for_what_a_platform_prints(at_home: Cenote, state: StateFolder) -> None:
    """Each metric of theirs is in the text that Prometheus gets, in a form that its own tool accepts."""
    started = json.loads(at_home("up", "--without-ray", "--port", "0", "--metrics-tenants", "--json").stdout)
    at_home("runtime", "create", "seen", "--memory", "256MiB")
    at_home("runtime", "exec", "seen", "-c", "1")
    token = at_home("token", "create", "default", "--scope", "machines").stdout.strip()
    headers = {"Authorization": f"Bearer {token}"}

    def printed() -> str:
        text = httpx.get(f"{started['http']}/metrics", headers=headers).raise_for_status().text
        return text if "cenote_tenant_cells_total{" in text else ""

    text = until(printed)
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    asked = {name for query in QUERIES for name in re.findall(r"\bcenote_\w+", query)}
    assert set() == asked - names
    if shutil.which("promtool") is not None:
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert (0, "") == (checked.returncode, checked.stderr)
