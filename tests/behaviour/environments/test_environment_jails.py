"""Jails with their own packages: exactly these, whatever they contain, and states that stay with them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.environments.wheels import write_wheel

from cenote.gateway.values.bounds import TenantBounds
from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.environment import Environment
from cenote_security.errors import RejectedError, UsageError
from cenote_security.ids import TenantId
from cenote_security.policy import SandboxPolicy, weakness
from cenote_worker.checkpoints.errors import OtherEnvironmentError
from cenote_worker.environments.building import build
from cenote_worker.environments.errors import EnvironmentInUseError, UnknownEnvironmentError
from cenote_worker.environments.store import EnvironmentStore
from cenote_worker.supervisor import start
from cenote_worker.wire import policies

Of = Callable[..., Environment]
TRACE = "import pathlib\ntry:\n    pathlib.Path({!r}).touch()\nexcept OSError:\n    pass\n"


def policy(environment: Environment | str | None, **more: object) -> SandboxPolicy:
    return SandboxPolicy(environment=environment, preload=(), **more)  # type: ignore[arg-type]


@contextmanager
def opened(environment: Environment | str | None, **arguments: object) -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=policy(environment), **arguments) as runtime:  # type: ignore[arg-type]
        yield runtime


def value(runtime: PythonRuntime, expression: str) -> object:
    """The value of an expression inside, as JSON."""
    result = runtime.execute(f"import json\nprint(json.dumps({expression}))")
    assert result.success, result.error
    assert result.stdout is not None
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def one(of: Of) -> Iterator[PythonRuntime]:
    """A runtime of `greeting` 1.0."""
    with opened(of("greeting==1.0")) as runtime:
        yield runtime


def test_the_record_names_its_packages(of: Of, kept: EnvironmentStore, tmp_path: Path) -> None:
    """Each with its version, and the hash of the lock: in the state, in an export, and in a history that is read."""
    with opened(of("greeting==1.0"), history=tmp_path / "history.db", name="named") as runtime:
        runtime.execute("import greeting")
        used = runtime.state.environment(1)
        built = kept.get(used.digest)
        assert built is not None
        assert ("greeting==1.0", "tone==1.5") == used.packages == built.packages
        assert hashlib.sha256(built.lock.encode()).hexdigest() == used.lock
        assert built.python == used.python
        for suffix in ("json", "ipynb"):
            runtime.state.export(tmp_path / f"run.{suffix}")
    told = json.loads((tmp_path / "run.json").read_text())["environments"]
    noted = json.loads((tmp_path / "run.ipynb").read_text())["metadata"]["cenote"]["environments"]
    assert told == noted
    assert [(used.digest, ["greeting==1.0", "tone==1.5"], 0)] == [
        (each["digest"], each["packages"], each["after"]) for each in told
    ]
    with opened(None) as plain:
        plain.execute("1")
        assert "" == plain.state.environment().digest
        plain.state.export(tmp_path / "plain.json")
    assert "environments" not in json.loads((tmp_path / "plain.json").read_text())


def test_its_packages_and_no_others(one: PythonRuntime, kept: EnvironmentStore, place: Path) -> None:
    """This process's packages cannot be imported, and a program started by a cell has the same packages."""
    code = (
        "import greeting, tone; print(greeting.VERSION, tone.LOUD)\n"
        "try:\n    import numpy\nexcept ImportError:\n    print('none')"
    )
    told = one.execute(code)
    assert "1.0 True\nnone\n" == told.stdout, told.error
    digest = one.core.policy.environment
    assert isinstance(digest, str)
    venv = str(kept.root / digest / "venv")
    assert [venv, f"{venv}/bin/python"] == value(
        one, "[__import__('sys').prefix, __import__('sys').executable]"
    )
    program = one.run(["python", "-c", code])
    assert "1.0 True\nnone\n" == program.stdout
    assert ["greeting", "tone"] == value(
        one, "sorted(each.name for each in __import__('importlib.metadata').metadata.distributions())"
    )
    # The start-up file of `tone` ran in that program, inside; never here.
    assert not (place / "trace").exists()


def test_its_files_are_read_only(one: PythonRuntime) -> None:
    """Also from inside."""
    result = one.execute("import greeting\nopen(greeting.__file__, 'a')")
    assert result.error is not None
    assert result.error.type in ("OSError", "PermissionError")


def test_what_cells_expect_of_python(one: PythonRuntime) -> None:
    """Builtins such as `exit` and `help`, which Python's start-up adds, exist without it."""
    names = ("exit", "quit", "help", "copyright", "license")
    assert [True] * len(names) == value(one, f"[hasattr(__import__('builtins'), each) for each in {names}]")


def test_state_works_as_elsewhere(one: PythonRuntime) -> None:
    """Rollback, a fork, a process that dies."""
    one.execute("import greeting; count = 1")
    first = one.execute("count += 1")
    one.execute("count = 99")
    one.rollback(first.step)
    with one.fork() as branch:
        assert [2, "1.0"] == value(branch, "[count, greeting.VERSION]")
        assert one.core.policy.environment == branch.core.policy.environment
    one.execute("import os; os._exit(1)")
    assert 2 == value(one, "count")


def test_values_cross(of: Of) -> None:
    """Functions by value, plain data, and host functions; a class of a package that is only inside stays inside."""

    def doubled(number: int) -> int:
        return 2 * number

    def host(number: int) -> int:
        return number + 1

    with opened(
        of("greeting==1.0"),
        functions=[Function(host)],
        variables=[Variable("given", {"a": [1, 2.5, None]}), Variable("doubled", doubled)],
    ) as runtime:
        assert [6, 4, [1, 2.5, None]] == value(runtime, "[doubled(3), host(3), given['a']]")
        assert {"a": [1, 2.5, None]} == runtime.retrieve("given")


def test_a_module_of_the_environment_is_there_from_the_start(of: Of, kept: EnvironmentStore) -> None:
    """Its zygote imports the modules it names, besides those that the policy names."""
    wanted = of("greeting==2.0", preload=["greeting"])
    with opened(wanted) as runtime:
        assert True is value(runtime, "'greeting' in __import__('sys').modules")
    with pytest.raises(EnvironmentInUseError):  # its zygote is reused by the next one
        kept.remove(build(wanted).digest)


def test_equal_content_has_one_zygote(of: Of) -> None:
    """For any name. A zygote starts with the first cell that needs it."""
    version = "__import__('greeting').VERSION"
    with opened(of("greeting==1.0", "tone==1.5")) as same, opened(build(of("greeting==1.0")).digest) as again:
        assert "1.0" == value(same, version)
        zygotes = len(start._nursery._zygotes)
        assert "1.0" == value(again, version)
        assert zygotes == len(start._nursery._zygotes)


def test_two_versions_at_once(one: PythonRuntime, of: Of) -> None:
    """Side by side in one process."""
    with opened(of("greeting==2.0")) as other:
        assert ["2.0", "1.0"] == [value(each, "__import__('greeting').VERSION") for each in (other, one)]


def test_packages_that_would_be_others(place: Path) -> None:
    """Modules with the names of the worker's, the standard library's and start-up files never run outside."""
    trace = place / "ran outside"
    said = TRACE.format(str(trace))
    names = (
        "xxhash",
        "cloudpickle",
        "cenote_worker",
        "cenote_worker/zygote",
        "cenote_security",
        "google/protobuf",
    )
    files = {f"{name}/__init__.py": said for name in names}
    files |= {f"{name}.py": said for name in ("json", "site", "sitecustomize", "usercustomize", "socket")}
    files |= {"cenote_worker/zygote/main.py": said, "evil.pth": f"import sys; exec({said!r})\n"}
    write_wheel(place / "evil", "evil", "1.0", files)
    wanted = Environment(["evil"], find_links=[str(place / "evil")], offline=True)
    with opened(wanted) as runtime:
        assert 3 == value(runtime, "1 + 2")
    assert not trace.exists()


def test_landlock(of: Of) -> None:
    """Without a private root."""
    with PythonRuntime(sandbox=policy(of("greeting==1.0"), isolation="landlock")) as runtime:
        assert "1.0" == value(runtime, "__import__('greeting').VERSION")
        assert "landlock" == runtime.isolation


def test_a_virtual_environment_that_lies_elsewhere(of: Of, kept: EnvironmentStore, place: Path) -> None:
    """Its packages are those of the jail."""
    venv = kept.root / build(of("greeting==2.0")).digest / "venv"
    with opened(Environment(path=venv)) as runtime:
        assert "2.0" == value(runtime, "__import__('greeting').VERSION")


def test_states_stay_with_their_environment(of: Of, tmp_path: Path, kept: EnvironmentStore) -> None:
    """A checkpoint names it by content; with another one, or none, it is refused, with the remedy."""
    kept.name("work", build(of("greeting==1.0")).digest)
    stored = {"store": str(tmp_path), "name": "kept"}
    with opened("work", durable=True, **stored) as runtime:
        runtime.execute("import greeting\nvalue = greeting.VERSION")
        digest = runtime.core.policy.environment
    kept.name("work", build(of("greeting==2.0")).digest)
    for other, said in (("work", "environment"), (None, "without an environment")):
        with pytest.raises(OtherEnvironmentError, match=rf'{said}.*SandboxPolicy\(environment="{digest}"\)'):
            PythonRuntime.restore(**stored, sandbox=policy(other))
    with PythonRuntime.restore(**stored, sandbox=policy(str(digest))) as again:
        assert "1.0" == value(again, "greeting.VERSION")


def test_states_without_an_environment(of: Of, tmp_path: Path) -> None:
    """They are refused in one."""
    stored = {"store": str(tmp_path), "name": "plain"}
    with opened(None, **stored) as runtime:
        runtime.execute("value = 1")
        runtime.checkpoint()
    with pytest.raises(OtherEnvironmentError, match="restore it with no environment"):
        PythonRuntime.restore(**stored, sandbox=policy(of("greeting==1.0")))


def test_one_that_is_not_there() -> None:
    """It is an error of the call that would start the jail; the next one may find it."""
    with opened("absent") as runtime:
        for _ in range(2):
            with pytest.raises(UnknownEnvironmentError, match="cenote env build"):
                runtime.execute("1")


def test_platforms_refuse_it(of: Of) -> None:
    """No message has a definition; a name that the tenant does not have is refused by the gateway."""
    with pytest.raises(UsageError, match="names an environment that is built"):
        policies.from_policy(policy(of("greeting")))
    named = policies.to_policy(policies.from_policy(policy("data")))
    assert "data" == named.environment
    with pytest.raises(RejectedError, match="no environments"):
        TenantBounds().apply(named, TenantId("tn_mine"))
    mine = TenantBounds(own=lambda tenant: {"data": "d" * 64} if tenant == "tn_mine" else {})
    assert "d" * 64 == mine.apply(named, TenantId("tn_mine")).environment
    with pytest.raises(RejectedError, match="no environments"):
        mine.apply(named, TenantId("tn_other"))


def test_nothing_of_a_tenants_environment_is_imported_beforehand() -> None:
    """`numpy` there is whatever the tenant has asked for, and the zygote is shared. The operator's is trusted."""
    digest = "d" * 64
    named = SandboxPolicy(environment=digest)
    assert () == TenantBounds(own=lambda _: {"data": digest}).apply(named, TenantId("tn_mine")).preload
    assert ("numpy", "pandas") == TenantBounds(environments={"data": digest}).apply(
        named, TenantId("tn_mine")
    ).preload


def test_a_child_has_its_parents_or_none(of: Of) -> None:
    """Another one might show a different folder of the machine."""
    parent = policy(of("greeting"))
    assert weakness(parent, parent) is None
    assert weakness(policy(None), parent) is None
    assert "environment" == getattr(weakness(policy("other"), parent), "field", None)


def test_without_uv(of: Of, kept: EnvironmentStore) -> None:
    """A built one is used without it; building is refused in one line."""
    digest = build(of("greeting==1.0")).digest
    program = (
        "import sys; sys.modules['uv'] = None\n"
        "from cenote import Environment, PythonRuntime, SandboxPolicy\n"
        "for each in (sys.argv[1], Environment(['tone'], offline=True)):\n"
        "    with PythonRuntime(sandbox=SandboxPolicy(environment=each, preload=())) as runtime:\n"
        "        try: print(runtime.execute('import greeting; greeting.VERSION').value)\n"
        "        except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, digest], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert "'1.0'" == first
    assert second.startswith(
        "building environments is not installed here: pip install 'cenote[environments]'"
    )
