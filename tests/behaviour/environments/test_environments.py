"""Environments on one machine: built once, by content, from wheels only, and never partially."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.environments.wheels import write_sources, write_wheel

from cenote_security.environment import Environment
from cenote_security.errors import UsageError
from cenote_worker.environments import building, packages, uv_unsafe
from cenote_worker.environments.building import build, check_unchanged
from cenote_worker.environments.errors import (
    EnvironmentBuildError,
    EnvironmentInUseError,
    UnfitEnvironmentError,
    UnknownEnvironmentError,
)
from cenote_worker.environments.store import BuiltEnvironment, EnvironmentStore

Of = Callable[..., Environment]
PYTHON = ".".join(map(str, sys.version_info[:2]))


def test_what_is_built(of: Of, kept: EnvironmentStore, place: Path) -> None:
    """Exact packages, read-only and readable for all, compiled; none of their code has run."""
    said: list[str] = []
    built = build(of("greeting==1.0", preload=["greeting.deep", "tone"]), said.append)
    assert ("greeting==1.0", "tone==1.5") == built.packages
    assert built == kept.get(built.digest)
    assert "resolving 1 requirements" in said
    modes = {path.lstat().st_mode & 0o777 for path in Path(built.site).rglob("*")}
    assert {0o444, 0o555} == modes
    assert list(Path(built.site, "greeting", "__pycache__").glob("*.pyc"))
    assert not (place / "trace").exists()
    assert [] == list((kept.root / "staging").iterdir())


def test_the_address_is_the_content(of: Of, wheels: Path, tmp_path: Path) -> None:
    """Two descriptions of the same packages give one environment; other packages, or another preload, do not."""
    built = build(of("greeting==1.0"))
    assert built.digest == build(of("greeting<2", "tone")).digest
    lock = tmp_path / "requirements.txt"
    lock.write_text("# by hand\n" + "\n".join(reversed(built.lock.splitlines())))
    same = Environment(lockfile=lock, find_links=[str(wheels)], offline=True)
    assert built.digest == build(same).digest
    others = {build(of("greeting==2.0")).digest, build(of("greeting==1.0", preload=["greeting.deep"])).digest}
    assert 2 == len(others - {built.digest})


def test_requirements_are_resolved_once(of: Of, place: Path) -> None:
    """A newer version that appears later changes nothing until it is requested."""
    folder = place / "more"
    write_wheel(folder, "grows", "1.0", {"grows.py": ""})
    wanted = Environment(["grows"], find_links=[str(folder)], offline=True)
    first = build(wanted)
    write_wheel(folder, "grows", "1.1", {"grows.py": ""})
    assert first.digest == build(wanted).digest
    assert ("grows==1.1",) == build(wanted, refresh=True).packages


def test_sources_are_not_built(place: Path, tmp_path: Path) -> None:
    """A source distribution's code would run outside any jail: it is refused, by name and by path."""
    trace, folder = tmp_path / "ran", tmp_path / "sources"
    setup = f"open({str(trace)!r}, 'w')\n"
    write_sources(folder, "hostile", "1.0", setup)
    (folder / "project").mkdir()
    (folder / "project" / "setup.py").write_text(setup)
    for requirement in (
        "hostile",
        f"hostile @ file://{folder}/hostile-1.0.tar.gz",
        f"a @ file://{folder}/project",
    ):
        with pytest.raises(EnvironmentBuildError, match="resolving the requirements failed"):
            build(Environment([requirement], find_links=[str(folder)], offline=True))
    assert not trace.exists()


def test_what_cannot_be_had_is_said(of: Of, kept: EnvironmentStore) -> None:
    """In uv's words; nothing is left."""
    before = kept.all()
    with pytest.raises(EnvironmentBuildError, match=r"greeting==3\.0"):
        build(of("greeting==3.0"))
    assert before == kept.all()


def test_a_failure_in_the_middle_leaves_nothing(
    of: Of, kept: EnvironmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk while packages are compiled: no environment, no folder; the next attempt succeeds."""
    wanted = of("greeting==1.0", preload=["tone"])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(building, "compile_modules", full)
        with pytest.raises(EnvironmentBuildError, match="No space left"):
            build(wanted)
    assert [] == list((kept.root / "staging").iterdir())
    assert ("tone",) == build(wanted).preload


def test_what_a_killed_builder_left_is_never_used(of: Of, kept: EnvironmentStore) -> None:
    """An incomplete environment has no name that is looked up; the next builder starts over."""
    wanted = of("tone", preload=["tone"])
    digest = build(wanted).digest
    kept.remove(digest)
    stage = kept.root / "staging" / f"{digest}.before"
    (stage / "venv" / "lib").mkdir(parents=True)
    (stage / "venv" / "lib").chmod(0o555)
    with pytest.raises(UnknownEnvironmentError):
        kept.find(digest)
    assert digest == build(wanted).digest
    assert not stage.exists()


def _build_and_count(wanted: Environment, counts: multiprocessing.Queue[int]) -> None:
    said: list[str] = []
    build(wanted, said.append)
    counts.put(sum(line.startswith("compiling") for line in said))


def test_two_processes_build_one(of: Of) -> None:
    """The second process waits and finds it."""
    wanted, context = of("greeting==2.0", preload=["greeting"]), multiprocessing.get_context("spawn")
    counts: multiprocessing.Queue[int] = context.Queue()
    both = [context.Process(target=_build_and_count, args=(wanted, counts)) for _ in range(2)]
    for each in both:
        each.start()
    assert [0, 1] == sorted(counts.get(timeout=100) for _ in both)
    for each in both:
        each.join()


def test_names(of: Of, kept: EnvironmentStore) -> None:
    """A name refers to the one that got it last; leading digits are enough if they are unique."""
    one, other = build(of("greeting==1.0")), build(of("greeting==2.0"))
    kept.name("data", one.digest)
    assert one == kept.find("data")
    kept.name("data", other.digest)
    assert other == kept.find("data") == kept.find(other.digest[:8])
    for unknown in (other.digest[:7], "nothing", "../" + other.digest, ""):
        with pytest.raises(UnknownEnvironmentError):
            kept.find(unknown)
    for wrong in ("", "a/b", "..", other.digest):
        with pytest.raises(UsageError, match="a name of an environment"):
            kept.name(wrong, one.digest)


def test_what_is_in_use_stays(of: Of, kept: EnvironmentStore) -> None:
    """Removal is refused while a process uses it; later it removes the name too."""
    built = build(of("tone"))
    kept.name("loud", built.digest)
    with kept.held(built.digest) as descriptor:
        copy = os.dup(descriptor)
    with pytest.raises(EnvironmentInUseError, match=built.digest[:12]):
        kept.remove("loud")
    assert kept.is_held(built.digest)
    os.close(copy)
    assert not kept.is_held(built.digest)
    assert built == kept.remove("loud")
    assert "loud" not in kept.names()
    assert not (kept.root / built.digest).exists()
    with pytest.raises(UnknownEnvironmentError), kept.held(built.digest):
        pass


def test_another_python_is_refused(of: Of) -> None:
    """This process's version, in part or in full, is accepted; any other is an error with the next step."""
    build(of("tone", python=PYTHON))
    for wrong in ("3.9", "3.1", f"{PYTHON}.999"):
        with pytest.raises(UnfitEnvironmentError, match=f"run it with Python {wrong}"):
            build(of("tone", python=wrong))


def test_a_preload_is_there(of: Of) -> None:
    """A missing module is found when the environment is built, not when a jail starts."""
    with pytest.raises(UnfitEnvironmentError, match="'absent'"):
        build(of("tone", preload=["absent.part"]))


def test_versions_that_no_worker_works_with(place: Path, tmp_path: Path) -> None:
    """A requirement on one cannot be resolved; a lock with one is refused."""
    folder = tmp_path / "old"
    write_wheel(folder, "protobuf", "4.25.0", {"google/protobuf/__init__.py": ""})
    with pytest.raises(EnvironmentBuildError, match="protobuf"):
        build(Environment(["protobuf"], find_links=[str(folder)], offline=True))
    lock = tmp_path / "lock.txt"
    digest = sha256(next(folder.iterdir()).read_bytes()).hexdigest()
    lock.write_text(f"protobuf==4.25.0 --hash=sha256:{digest}\n")
    with pytest.raises(UnfitEnvironmentError, match=r"protobuf 4\.25\.0, and the worker"):
        build(Environment(lockfile=lock, find_links=[str(folder)], offline=True))


@pytest.mark.parametrize(
    ("package", "fits"),
    [
        ("protobuf==7.36.0", True),
        ("protobuf==7.35.9", False),
        ("protobuf==8", False),
        ("xxhash==3.4", True),
        ("xxhash==3.3.9", False),
        ("cloudpickle==4.0.0", False),
        ("cloudpickle==3.1", True),
        ("other==0.1", True),
    ],
)
def test_bounds_of_versions(package: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bounds and one past them."""
    bounds = {"protobuf": ">=7.36,<8", "xxhash": ">=3.4,<4", "cloudpickle": ">=3.1,<4"}
    assert bounds.keys() == packages.constraints().keys()
    monkeypatch.setattr(packages, "constraints", lambda: bounds)
    assert fits is (packages.unfit([package]) == "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tone==1.5\n", "has no hash"),
        ("tone --hash=sha256:00\n", "names no exact version"),
        ("tone>=1 --hash=sha256:00\n", "names no exact version"),
        ("tone==1.* --hash=sha256:00\n", "names no exact version"),
        ("-r other.txt\n", "is an option"),
        ("-e .\n", "is an option"),
        ("--index-url https://example.org\n", "is an option"),
        ("# nothing\n", "names no package"),
        ("tone==1.5 --hash=md5:00\n", "has no hash"),
    ],
)
def test_what_is_no_lock(text: str, reason: str, place: Path, tmp_path: Path) -> None:
    """A file that is incomplete, or leads elsewhere."""
    lock = tmp_path / "requirements.txt"
    lock.write_text(text)
    with pytest.raises(UnfitEnvironmentError, match=reason):
        build(Environment(lockfile=lock, offline=True))


def test_a_hash_is_checked(of: Of, wheels: Path, tmp_path: Path) -> None:
    """A wheel that differs from the one in the lock is not installed."""
    lock = tmp_path / "requirements.txt"
    lock.write_text(f"tone==1.5 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(EnvironmentBuildError, match="installing the packages failed"):
        build(Environment(lockfile=lock, find_links=[str(wheels)], offline=True))


def test_lock_files_of_other_tools(of: Of, wheels: Path, tmp_path: Path) -> None:
    """`pylock.toml` and `uv.lock`, as uv writes them."""
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "mine"\nversion = "1"\nrequires-python = ">={PYTHON}"\n'
        'dependencies = ["greeting==1.0"]\n'
        f'[tool.uv]\nfind-links = ["{wheels}"]\nno-index = true\n'
    )
    for arguments in (
        ("lock",),
        ("export", "--format", "pylock.toml", "-o", "pylock.toml", "--no-emit-project"),
    ):
        arguments = (*arguments, "--python", uv_unsafe.base_python(), "--offline")
        uv_unsafe.run_uv("locking", arguments, tmp_path, building.silent)
    _add_hashes(tmp_path / "uv.lock", wheels)
    for name in ("uv.lock", "pylock.toml"):
        built = build(Environment(lockfile=tmp_path / name, find_links=[str(wheels)], offline=True))
        assert ("greeting==1.0", "tone==1.5") == built.packages
    sources = '[[packages]]\nname = "a"\nversion = "1"\n[packages.vcs]\ntype = "git"\nurl = "https://a.org"\n'
    (tmp_path / "pylock.toml").write_text(sources)
    with pytest.raises(UnfitEnvironmentError, match="no wheel of a"):
        build(Environment(lockfile=tmp_path / "pylock.toml"))


def _add_hashes(lock: Path, wheels: Path) -> None:
    """As uv gets them from an index; for a folder it writes none."""
    text = lock.read_text()
    for wheel in wheels.iterdir():
        digest = sha256(wheel.read_bytes()).hexdigest()
        text = text.replace(f'{wheel.name}"', f'{wheel.name}", hash = "sha256:{digest}"')
    lock.write_text(text)


def test_settings_of_other_users_are_not_read(
    of: Of, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv reads an index from a `uv.toml` in parent folders: files in world-writable folders are ignored."""
    (tmp_path / "uv.toml").write_text('this = "would be an error"\n')
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert ("tone==1.5",) == build(of("tone<9")).packages


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_environments_of_other_users_are_not_used(of: Of, kept: EnvironmentStore) -> None:
    """Those of root and of this user are."""
    built = build(of("tone"))
    check_unchanged(built, kept)
    os.chown(kept.root / built.digest, 65534, -1)
    try:
        with pytest.raises(UnfitEnvironmentError, match="belongs to user 65534"):
            check_unchanged(built, kept)
    finally:
        os.chown(kept.root / built.digest, 0, -1)


# -- virtual environments in other places --


@pytest.fixture
def venv(wheels: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "venv"
    base = uv_unsafe.base_python()
    python = str(folder / "bin" / "python")
    uv_unsafe.run_uv("", ("venv", "--python", base, str(folder)), tmp_path, building.silent)
    options = ("--python", python, "--offline", "--no-index", "--find-links", str(wheels))
    uv_unsafe.run_uv("", ("pip", "install", *options, "greeting==1.0"), tmp_path, building.silent)
    return folder


def test_a_virtual_environment(venv: Path, kept: EnvironmentStore) -> None:
    """It stays in place, and is reported as changed when another package is added."""
    built = build(Environment(path=venv))
    assert (str(venv), ("greeting==1.0", "tone==1.5")) == (built.venv, built.packages)
    assert built == build(Environment(path=venv))
    check_unchanged(built, kept)
    info = next(Path(built.site).glob("tone-*.dist-info"))
    (info / "RECORD").write_text("tone.py,,\n")
    with pytest.raises(UnfitEnvironmentError, match="have changed since"):
        check_unchanged(built, kept)
    assert built.digest != build(Environment(path=venv)).digest


def test_what_is_no_virtual_environment(venv: Path, place: Path, tmp_path: Path) -> None:
    """Each with its reason."""
    config = venv / "pyvenv.cfg"
    right = config.read_text()
    cases: list[tuple[str, Callable[[], object]]] = [
        ("no pyvenv.cfg", config.unlink),
        (
            "packages of its Python",
            lambda: config.write_text(right.replace("packages = false", "packages = true")),
        ),
        ("was made by", lambda: (_relink(venv / "bin" / "python"), config.write_text(right))),
    ]
    for reason, spoil in cases:
        spoil()
        with pytest.raises(UnfitEnvironmentError, match=reason):
            build(Environment(path=venv))


def _relink(python: Path) -> None:
    python.unlink()
    python.symlink_to("/bin/sh")


def test_an_editable_package_is_refused(venv: Path) -> None:
    """Its files are where no jail sees them."""
    info = next(venv.rglob("greeting-*.dist-info"))
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///a", "dir_info": {"editable": True}}))
    with pytest.raises(UnfitEnvironmentError, match="greeting is installed editable"):
        build(Environment(path=venv))


# -- definitions --


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "needs its packages"),
        ({"requirements": ["a"], "path": "/a"}, "requirements or path, not both"),
        ({"requirements": ["-r /etc/passwd"]}, "requirements is a list"),
        ({"requirements": ["a\n-e ."]}, "requirements is a list"),
        ({"requirements": "numpy"}, "requirements is a list"),
        ({"requirements": ["a"], "python": "2.7"}, "a version such as"),
        ({"requirements": ["a"], "preload": ["a b"]}, "a list of module names"),
        ({"requirements": ["a"], "index": "--pre"}, "index is a URL"),
        ({"path": "/a", "offline": True}, "leave out offline"),
    ],
)
def test_what_is_no_definition(arguments: dict[str, object], reason: str) -> None:
    """Each is refused when it is made, in one sentence."""
    with pytest.raises(UsageError, match=reason):
        Environment(**arguments)  # type: ignore[arg-type]


def test_a_definition_as_json() -> None:
    """It comes back equal, with any fields."""
    wanted = Environment(["a==1", "b"], python="3.12", preload=["a"], find_links=["/w"], offline=True)
    assert wanted == Environment.from_json(wanted.to_json())


def test_facts_as_they_are_stored(of: Of, kept: EnvironmentStore) -> None:
    """They do not name its own folder, so that all environments may be moved."""
    built = build(of("greeting==1.0"))
    facts = json.loads((kept.root / built.digest / "environment.json").read_text())
    assert "venv" == facts["venv"]
    assert isinstance(kept.get(built.digest), BuiltEnvironment)
