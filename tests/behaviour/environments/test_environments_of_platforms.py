"""A platform has the environments that its operator names, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cenote
from cenote.cli.main import main
from cenote.connection import Platform
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import platform as begun_platform
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.environment import Environment
from cenote_security.errors import RejectedError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.environments.building import build
from cenote_worker.environments.errors import EnvironmentInUseError
from cenote_worker.environments.store import BuiltEnvironment, EnvironmentStore

pytestmark = pytest.mark.slow

Command = Callable[..., subprocess.CompletedProcess[str]]
VERSION = "import greeting\ngreeting.VERSION"


def policy(environment: str | None) -> SandboxPolicy:
    return SandboxPolicy(environment=environment, preload=())


@pytest.fixture(scope="module")
def command(place: Path) -> Command:
    """`cenote` of an operator with separate folders."""

    def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        own = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CONFIG")}
        given = {name: text for name, text in os.environ.items() if not name.startswith("CENOTE_")}
        given["CENOTE_ENVIRONMENTS"] = str(place / "environments")
        line = [sys.executable, "-m", "cenote.cli.main", *words]
        return subprocess.run(line, env=given | own, capture_output=True, text=True, timeout=100)

    return run


@pytest.fixture(scope="module")
def built(of: Callable[..., Environment], kept: EnvironmentStore) -> BuiltEnvironment:
    """An environment with a name."""
    built = build(of("greeting==1.0"))
    kept.name("words", built.digest)
    return built


@pytest.fixture(scope="module", params=["one process", "on Ray"])
def platform(
    command: Command,
    built: BuiltEnvironment,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Platform]:
    """Its operator has built the environment before."""
    kind = ["--without-ray"] if request.param == "one process" else []
    folder = tmp_path_factory.mktemp("operator")
    done = command(folder, "up", *kind, "--port", "0", "--no-http", "--environment", "words", "--json")
    assert 0 == done.returncode, done.stderr
    said = json.loads(done.stdout)
    try:
        yield cenote.connect(said["address"], Path(said["token_file"]).read_text().strip())
    finally:
        command(folder, "down")


def test_runtimes_have_what_the_name_means(platform: Platform, built: BuiltEnvironment) -> None:
    """No other packages; the digest works as well."""
    for name, given in (("by-name", "words"), ("by-digest", built.digest)):
        with platform.runtime(name, sandbox=policy(given)) as runtime:
            assert "'1.0'" == runtime.execute(VERSION).value
            error = runtime.execute("import numpy").error
            assert error is not None
            assert "ModuleNotFoundError" == error.type


def test_the_record_and_the_command_name_the_packages(
    platform: Platform,
    built: BuiltEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with platform.runtime("named", sandbox=policy("words")) as runtime:
        runtime.execute(VERSION)
        assert (built.digest, built.packages) == (
            runtime.state.environment(1).digest,
            runtime.state.environment(1).packages,
        )
    assert platform._destination.token is not None
    monkeypatch.setenv("CENOTE_TOKEN", platform._destination.token)
    assert 0 == main(["runtime", "show", "named", "--address", platform.address])
    shown = [
        line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines() if "packages " in line
    ]
    assert built.digest[:12] in shown[0]
    assert list(built.packages) == shown[1:]
    assert 0 == main(["runtime", "show", "named", "--json", "--address", platform.address])
    assert list(built.packages) == json.loads(capsys.readouterr().out)["packages"]["packages"]


def test_a_runtime_that_is_there_has_its_own(platform: Platform, built: BuiltEnvironment) -> None:
    """A client may join it by any name; one that requests a different environment is refused."""
    with platform.runtime("mine", sandbox=policy("words")) as runtime:
        runtime.execute("kept = 7")
    for given in (policy("words"), policy(built.digest), None):
        with platform.runtime("mine", sandbox=given) as again:
            assert "7" == again.execute("kept").value
    with platform.runtime("bare", sandbox=policy(None)) as runtime:
        runtime.execute("kept = 7")
    with pytest.raises(
        RejectedError, match="'bare' is there with no environment, where 'words' is asked for"
    ):
        platform.runtime("bare", sandbox=policy("words"))


def test_tasks_of_jobs_have_it(platform: Platform) -> None:
    job = platform.jobs.submit(
        [{"id": "one", "code": f"{VERSION}\nsaid = greeting.VERSION"}], sandbox=policy("words"), result="said"
    )
    (result,) = job.results(follow=True)
    assert ("1.0", "") == (result.value, result.error or "")


def test_others_are_refused(platform: Platform, of: Callable[..., Environment]) -> None:
    """Another name, and another digest."""
    for given in ("sums", build(of("greeting==2.0")).digest):
        with pytest.raises(
            RejectedError, match=r"has the environments words for this tenant, not .* --environment NAME"
        ):
            platform.runtime("refused", sandbox=policy(given))


def test_a_name_means_the_same_until_the_platform_ends(
    platform: Platform, of: Callable[..., Environment], kept: EnvironmentStore, built: BuiltEnvironment
) -> None:
    """It cannot be removed while the platform runs."""
    kept.name("words", build(of("greeting==2.0")).digest)
    try:
        with platform.runtime("later", sandbox=policy("words")) as runtime:
            assert "'1.0'" == runtime.execute(VERSION).value
        with pytest.raises(EnvironmentInUseError):
            kept.remove(built.digest)
    finally:
        kept.name("words", built.digest)


def test_an_environment_that_is_not_there(command: Command, tmp_path: Path) -> None:
    """`cenote up` reports it in one line."""
    done = command(tmp_path, "up", "--without-ray", "--port", "0", "--no-http", "--environment", "none")
    assert 0 != done.returncode
    assert "no environment 'none' is built on this machine" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_platform_without_environments_needs_no_place_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user may have no home folder, as in a container."""

    def homeless() -> None:
        raise UsageError("this user has no home folder")

    monkeypatch.setattr("cenote.gateway.process.platform.EnvironmentStore", homeless)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    state = StateFolder(path=tmp_path / "state")
    with begun_platform(PlatformOptions(state=state, port=0, without_ray=True, no_http=True)) as running:
        assert running.address
