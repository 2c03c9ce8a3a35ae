"""A platform builds environments for its tenants: named by tenant, in a jail, once for equal content."""

from __future__ import annotations

import http.server
import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.doors.http_served import client
from tests.support.environments.operator import Operator
from tests.support.environments.wheels import write_index, write_sources, write_wheel
from tests.waiting import until

import cenote
from cenote.connection import Platform
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import platform as begun_platform
from cenote.gateway.store.state_folder import StateFolder
from cenote_security.environment import Environment
from cenote_security.errors import (
    QuotaExceededError,
    RejectedError,
    UnknownEntryError,
    UsageError,
)
from cenote_security.policy import SandboxPolicy
from cenote_worker.environments.errors import EnvironmentBuildError
from cenote_worker.environments.store import EnvironmentStore

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]  # a platform on Ray takes a minute of CPU to start

VERSION = "import greeting\ngreeting.VERSION"


def policy(environment: Environment | str | None) -> SandboxPolicy:
    return SandboxPolicy(environment=environment, preload=())


@pytest.fixture(scope="module")
def operator(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return Operator(tmp_path_factory.mktemp("operator"), place / "of tenants")


@pytest.fixture(scope="module")
def there(operator: Operator) -> EnvironmentStore:
    """What the platform's machine has built."""
    return EnvironmentStore(Path(operator.variables["CENOTE_ENVIRONMENTS"]))


@pytest.fixture(scope="module", params=["one process", "on Ray"])
def platform(operator: Operator, wheels: Path, request: pytest.FixtureRequest) -> Iterator[Platform]:
    kind = ["--without-ray"] if request.param == "one process" else []
    try:
        yield operator.up(*kind, "--environment-wheels", str(wheels), "--environment-disk", "256MiB")
    finally:
        operator("down")


@pytest.fixture(scope="module")
def rival(platform: Platform, operator: Operator) -> Platform:
    return operator.tenant(f"rival-{os.urandom(4).hex()}")


@pytest.fixture
def fresh(wheels: Path) -> str:
    """A package that no environment on this machine has: others with equal content are not built again."""
    name = f"fresh{os.urandom(4).hex()}"
    write_wheel(wheels, name, "1.0", {f"{name}.py": ""})
    return f"{name}==1.0"


def test_it_is_built_by_name_and_used(platform: Platform, there: EnvironmentStore, fresh: str) -> None:
    """By its name, in each form: runtimes, jobs, and what the record says of it."""
    lines: list[str] = []
    used = fresh.partition("==")[0]
    built = platform.environments.build(Environment(["greeting==1.0", fresh]), used, progress=lines.append)
    assert (used, "ready", (fresh, "greeting==1.0", "tone==1.5")) == (
        built.name,
        built.state,
        built.packages,
    )
    assert [line for line in lines if "resolving" in line or "packages" in line]
    assert there.get(built.digest) is not None
    assert not list((there.root / "staging").iterdir())
    for number, given in enumerate((used, built.digest)):
        with platform.runtime(f"named-{number}", sandbox=policy(given)) as runtime:
            assert "'1.0'" == runtime.execute(VERSION).value
            error = runtime.execute("import pathlib\npathlib.Path(greeting.__file__).write_text('')").error
            assert error is not None
            assert error.type in ("OSError", "PermissionError")
            assert built.digest == runtime.state.environment(1).digest
        platform.delete(f"named-{number}")
    job = platform.jobs.submit(
        [{"code": f"{VERSION}\nsaid = greeting.VERSION"}], sandbox=policy(used), result="said"
    )
    (result,) = job.results(follow=True)
    assert ("1.0", "") == (result.value, result.error or "")


def test_an_environment_is_built_where_it_is_asked_for(platform: Platform) -> None:
    """An Environment in a policy, with a name made of its packages. Twice is once."""
    wanted = policy(Environment(["greeting==2.0"]))
    for _ in range(2):
        with platform.runtime("given", sandbox=wanted) as runtime:
            assert "'2.0'" == runtime.execute(VERSION).value
    assert 1 == len([each for each in platform.environments.list() if "greeting==2.0" in each.packages])
    with cenote.PythonRuntime(
        address=platform.address, token=platform._destination.token, sandbox=wanted
    ) as unnamed:
        assert "'2.0'" == unnamed.execute(VERSION).value
    platform.delete("given")


def test_by_http(platform: Platform, operator: Operator, tmp_path: Path) -> None:
    """The same names and definitions; no file of the platform's machine is read for a caller."""

    def put(name: str, environment: object) -> tuple[int, str]:
        body = json.dumps({"policy": {"environment": environment, "preload": []}}).encode()
        asked = urllib.request.Request(
            f"{operator.http}/v1/runtimes/{name}",
            data=body,
            method="PUT",
            headers={"Authorization": f"Bearer {operator.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(asked, timeout=100) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    platform.environments.build(Environment(["greeting==1.0"]), "words")
    for number, given in enumerate(("words", {"requirements": ["greeting==1.0"]})):
        status, text = put(f"http-{number}", given)
        assert status in (200, 201), text
        with platform.runtime(f"http-{number}") as runtime:
            assert "'1.0'" == runtime.execute(VERSION).value
        platform.delete(f"http-{number}")
    secret = tmp_path / "requirements.txt"
    secret.write_text("secret")
    status, text = put("http-file", {"lockfile": str(secret)})
    assert (403, True) == (status, "would be one of the platform's machine" in text)


def test_they_are_built_listed_and_removed_by_http(
    platform: Platform, rival: Platform, operator: Operator, there: EnvironmentStore, fresh: str
) -> None:
    """By the rules of the tenant whose token it is; in the background."""
    at = "/v1/environments"
    assert rival._destination.token is not None
    with (
        client(operator.http, operator.token, 100) as http,
        client(operator.http, rival._destination.token, 100) as theirs,
    ):

        def ready(name: str) -> bool:
            found = http.get(f"{at}/{name}").json()
            assert "failed" != found["state"], found
            return bool("ready" == found["state"])

        begun = http.put(f"{at}/by-http", json={"requirements": [fresh]})
        assert (200, "by-http") == (begun.status_code, begun.json()["name"])
        until(lambda: ready("by-http"))
        found = http.get(f"{at}/by-http").json()
        assert ([fresh], False) == (found["packages"], found["common"])
        assert platform.environments.get("by-http").digest == found["digest"]
        assert found in http.get(at).json()
        kept = there.get(found["digest"])
        assert kept is not None
        assert 200 == http.put(f"{at}/by-lock", json={"lock": kept.lock}).status_code
        until(lambda: ready("by-lock"))
        assert found["digest"] == http.get(f"{at}/by-lock").json()["digest"]
        assert 409 == http.put(f"{at}/by-http", json={"requirements": ["greeting==1.0"]}).status_code
        for wrong in ({}, {"requirements": [fresh], "lock": kept.lock}, {"lockfile": "/etc/passwd"}):
            assert 400 == http.put(f"{at}/wrong", json=wrong).status_code
        assert 404 == theirs.get(f"{at}/by-http").status_code
        assert 404 == theirs.delete(f"{at}/by-http").status_code
        assert [] == [one["name"] for one in theirs.get(at).json() if one["name"].startswith("by-")]
        assert 204 == http.delete(f"{at}/by-lock").status_code
        with platform.runtime("with-by-http", sandbox=policy("by-http")) as runtime:
            runtime.execute("1")
            refused = http.delete(f"{at}/by-http")
            assert (400, True) == (refused.status_code, "with-by-http" in refused.text)
        platform.delete("with-by-http")
        assert 204 == http.delete(f"{at}/by-http").status_code
        assert 404 == http.get(f"{at}/by-http").status_code


def test_a_lock_is_the_same_content(platform: Platform, there: EnvironmentStore, tmp_path: Path) -> None:
    built = platform.environments.build(Environment(["greeting==1.0"]), "words")
    lock = tmp_path / "requirements.txt"
    kept = there.get(built.digest)
    assert kept is not None
    lock.write_text(kept.lock)
    assert built.digest == platform.environments.build(Environment(lockfile=lock), "locked").digest


def test_tenants_share_equal_content_and_nothing_else(
    platform: Platform, rival: Platform, there: EnvironmentStore
) -> None:
    """Names are a tenant's own. Equal content is there once, until the last has removed it."""
    mine = platform.environments.build(Environment(["tone"]), "shared")
    name = "shared"
    with pytest.raises(UnknownEntryError):
        rival.environments.get(name)
    with pytest.raises(UnknownEntryError):
        rival.environments.remove(name)
    for given in (name, mine.digest):
        with pytest.raises(RejectedError, match="for this tenant"):
            rival.runtime("stolen", sandbox=policy(given))
    theirs = rival.environments.build(Environment(["tone"]), "mine")
    assert mine.digest == theirs.digest
    platform.environments.remove(name)
    with rival.runtime("still", sandbox=policy("mine")) as runtime:
        assert "True" == runtime.execute("import tone\ntone.LOUD").value
    assert there.get(mine.digest) is not None
    with pytest.raises(UsageError, match="in use by the runtime 'still'"):
        rival.environments.remove("mine")
    rival.delete("still")
    rival.environments.remove("mine")
    until(lambda: there.get(mine.digest) is None)


def test_what_cannot_be_built_says_what_to_do(platform: Platform, wheels: Path) -> None:
    """One line with the next step; nothing is left but the name, which may be built again."""
    write_sources(wheels, "onlysources", "1.0", "raise SystemExit('it ran')\n")
    for requirements, said in (
        (["nonesuch"], "the index has no such package"),
        (["greeting==9"], "the index has no such package"),
        (["greeting", "tone<1"], "the requirements contradict each other"),
        (["onlysources"], "only wheels are installed"),
        (["tone @ file:///etc/passwd.whl"], "building environment"),
        (["tone @ https://files.example.com/tone-1.5-py3-none-any.whl"], "the index cannot be reached"),
    ):
        with pytest.raises(EnvironmentBuildError, match=said) as raised:
            platform.environments.build(Environment(requirements), "broken")
        assert "\n" not in str(raised.value)
        assert "failed" == platform.environments.get("broken").state
        with pytest.raises(RejectedError, match="is not ready"):
            platform.runtime("unready", sandbox=policy("broken"))
        platform.environments.remove("broken")


def test_what_no_platform_builds(platform: Platform, tmp_path: Path) -> None:
    """Said by the client, or by the gateway, before anything is built."""
    for wanted, said in (
        (Environment(["tone"], python="3.99"), "runtimes of this platform are of Python"),
        (Environment(["tone"], preload=["tone"]), "leave out preload"),
        (Environment(["tone"], index="https://evil.example.com/simple"), "operator says which index"),
        (Environment(path=str(tmp_path)), "is not on the platform's"),
    ):
        with pytest.raises(UsageError, match=said):
            platform.environments.build(wanted, "refused")
    with pytest.raises(UnknownEntryError):
        platform.environments.get("refused")
    platform.environments.build(Environment(["greeting==1.0"]), "taken")
    with pytest.raises(UsageError, match=r"the environment .taken. exists already.*cenote env rm"):
        platform.environments.build(Environment(["greeting==2.0"]), "taken")


def test_a_quota_of_disk(
    platform: Platform, operator: Operator, there: EnvironmentStore, wheels: Path
) -> None:
    """What does not fit fails, and is gone; a tenant with nothing left is refused at once. Room comes back."""
    write_wheel(wheels, "large", "1.0", {"large.py": f"TEXT = {'x' * 4_000_000!r}\n"})
    name = f"small-{os.urandom(4).hex()}"
    small = operator.tenant(name)
    assert 0 == operator("tenant", "limit", name, "environments", "1MiB").returncode
    first = small.environments.build(Environment(["tone"]), "first")
    with pytest.raises(EnvironmentBuildError, match="quota"):
        small.environments.build(Environment(["large"]), "second")
    assert not [each for each in there.all() if "large==1.0" in each.packages]
    assert 0 == operator("tenant", "limit", name, "environments", str(first.size)).returncode
    with pytest.raises(QuotaExceededError, match="environments"):
        small.environments.build(Environment(["greeting"]), "third")
    small.environments.remove("second")
    small.environments.remove("first")
    until(lambda: "room" if _begins(small) else "")


def _begins(platform: Platform) -> bool:
    try:
        return (
            platform.environments.build(Environment(["greeting==1.0"]), "third", wait=False).state != "failed"
        )
    except QuotaExceededError:
        return False


def test_the_audit_log_has_it(platform: Platform) -> None:
    platform.environments.build(Environment(["greeting==2.0"]), "noted")
    platform.environments.remove("noted")
    found = [
        (each.kind, each.facts["name"]) for each in platform.audit(kind="environment").records if each.kind
    ]
    kinds = [kind for kind, name in found if name == "noted"]
    assert ["environment.removed", "environment.built", "environment.requested"] == kinds[:3]


def test_the_command(platform: Platform, operator: Operator, fresh: str) -> None:
    """`cenote env build|ls|rm --address`, with progress on standard error."""
    there = ("--address", operator.address)
    wanted = ("greeting==1.0", fresh, "--name", "typed")
    done = operator("env", "build", *wanted, *there, CENOTE_TOKEN=operator.token)
    assert (0, True) == (done.returncode, "typed  3 packages" in done.stdout), done.stderr
    assert "resolving" in done.stderr
    listed = operator("env", "ls", "--json", *there, CENOTE_TOKEN=operator.token)
    assert "ready" == next(each for each in json.loads(listed.stdout) if each["name"] == "typed")["state"]
    failed = operator("env", "build", "nonesuch", "--name", "untyped", *there, CENOTE_TOKEN=operator.token)
    assert (4, True) == (failed.returncode, "the index has no such package" in failed.stderr), failed.stderr
    assert "Traceback" not in failed.stderr
    for name in ("typed", "untyped"):
        assert 0 == operator("env", "rm", name, *there, CENOTE_TOKEN=operator.token).returncode


def test_an_index_over_http_and_no_other(
    operator: Operator, wheels: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jail of a build reaches the operator's index, here on loopback, and nothing beside it."""
    write_index(wheels, tmp_path / "simple")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}/simple"
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("CENOTE_ENVIRONMENTS", str(place / "from an index"))
        options = PlatformOptions(
            state=StateFolder(path=tmp_path / "state"),
            port=0,
            without_ray=True,
            no_http=True,
            environment_index=(index,),
            environment_disk="256MiB",
        )
        with begun_platform(options) as running:
            platform = cenote.connect(running.address)
            built = platform.environments.build(Environment(["greeting==1.0"]), "words")
            assert ("greeting==1.0", "tone==1.5") == built.packages
            with platform.runtime("user", sandbox=policy("words")) as runtime:
                assert "'1.0'" == runtime.execute(VERSION).value
            other = f"tone @ http://127.0.0.1:{server.server_port + 1}/tone-1.5-py3-none-any.whl"
            with pytest.raises(EnvironmentBuildError, match="the index cannot be reached"):
                platform.environments.build(Environment([other]), "beside")
        server.shutdown()


def test_it_is_off_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    state = StateFolder(path=tmp_path / "state")
    with (
        begun_platform(PlatformOptions(state=state, port=0, without_ray=True, no_http=True)) as running,
        pytest.raises(RejectedError, match="--environment-index URL"),
    ):
        cenote.connect(running.address).environments.build(Environment(["tone"]), "words")
