"""Builds an environment on this machine from its definition, and gives the interpreter of its jails."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from cenote_security.environment import Environment, is_digest
from cenote_security.errors import UnavailableError
from cenote_security.extras import require
from cenote_security.policy import SandboxPolicy
from cenote_security.walls.interpreter import Interpreter, describe
from cenote_worker.environments import packages as locks
from cenote_worker.environments.errors import EnvironmentBuildError, UnfitEnvironmentError
from cenote_worker.environments.packages import worker_folder
from cenote_worker.environments.store import (
    VENV,
    BuiltEnvironment,
    EnvironmentStore,
    installed,
    site_of,
    size_of,
)
from cenote_worker.environments.uv_unsafe import Progress, base_python, compile_modules, run_uv


def silent(_line: str) -> None:
    """A Progress that ignores everything."""


def build(
    environment: Environment,
    progress: Progress = silent,
    *,
    refresh: bool = False,
    kept: EnvironmentStore | None = None,
) -> BuiltEnvironment:
    """The environment, built now unless it exists. Blocks.

    refresh: requirements are resolved again, perhaps to newer versions and thus to another environment.
    kept: the store of this machine's environments.

    Raises EnvironmentBuildError, UnfitEnvironmentError, UsageError, MissingExtraError. Then nothing is left of it.
    """
    kept = kept or EnvironmentStore()
    _check_python(environment)
    try:
        if environment.path:
            return _adopted(environment, kept)
        key = _key(environment)
        if not refresh and (found := kept.get(kept.resolved(key) or "-")) is not None:
            return found
        require("building environments", "environments", "uv")
        # Not in the system's temporary folder: uv reads the `uv.toml` of parent folders, even other users'.
        with kept.scratch() as folder:
            lock = locks.resolved(environment, folder, progress)
        digest = lock.digest(environment.preload)
        if (found := kept.get(digest)) is None:
            with kept.building(digest) as stage:
                # Another process may have built it while this one waited for its turn.
                found = kept.get(digest) or _install(environment, lock, digest, stage, kept, progress)
        kept.note_resolved(key, digest)
    except OSError as error:
        raise EnvironmentBuildError("building the environment", str(error)) from error
    return found


def _check_python(environment: Environment) -> None:
    """Checks the Python version: jails share this interpreter, and values pass between them and the client."""
    running = ".".join(map(str, sys.version_info[:3]))
    if environment.python and f"{running}.".startswith(f"{environment.python}.") is False:
        raise UnfitEnvironmentError(
            f"an environment for Python {environment.python}",
            f"this process is Python {running}, and its jails are too; run it with Python {environment.python}",
        )


def _key(environment: Environment) -> str:
    """A key of the input to resolve. Includes the content of a lock file, which may change under its name."""
    told: dict[str, Any] = asdict(environment)
    if environment.lockfile:
        file = Path(environment.lockfile).absolute()
        try:
            told["lockfile"] = sha256(file.read_bytes()).hexdigest()
        except OSError as error:
            raise UnfitEnvironmentError(f"lock file {file}", error.strerror or str(error)) from None
    told["find_links"] = [
        place if "://" in place else str(Path(place).absolute()) for place in environment.find_links
    ]
    return locks.digest_of({"definition": told}, environment.preload)


def _install(
    environment: Environment,
    lock: locks.PackageLock,
    digest: str,
    stage: Path,
    kept: EnvironmentStore,
    progress: Progress,
) -> BuiltEnvironment:
    file = stage / lock.file
    file.write_text(lock.text, encoding="utf-8")
    progress(f"building environment {digest[:12]}")
    venv = _make_venv(stage, progress)
    # Wheels only: building from sources would run their code, outside of any jail.
    strict = ("--no-deps", "--only-binary", ":all:", "--link-mode", "copy")
    hashes = ("--require-hashes",) if lock.file == "requirements.txt" else ()
    run_uv(
        "installing the packages",
        ("pip", "install", "--python", str(venv / "bin" / "python"), *strict, *hashes,
         *locks.index_options(environment), "-r", str(file)),
        stage,
        progress,
    )  # fmt: skip
    final = str(kept.root / digest / VENV)
    progress("compiling the packages")
    compile_modules(Path(site_of(str(venv))), site_of(final), progress)
    return publish(lock, environment.preload, stage, kept, progress)


def install_with(
    lock: locks.PackageLock,
    install: Callable[[Path, str], None],
    kept: EnvironmentStore,
    progress: Progress = silent,
) -> BuiltEnvironment:
    """The environment of a lock, whose packages are installed by the caller unless it exists. Blocks.

    install: adds packages, compiled, to a fresh virtual environment, given with the path that it gets in the end.
    Raises EnvironmentBuildError, UnfitEnvironmentError, what `install` raises. Then nothing is left of it.
    """
    digest = lock.digest(())
    with kept.building(digest) as stage:
        if (found := kept.get(digest)) is not None:
            return found
        _make_venv(stage, progress)
        install(stage / VENV, str(kept.root / digest / VENV))
        return publish(lock, (), stage, kept, progress)


def _make_venv(stage: Path, progress: Progress) -> Path:
    options = ("--relocatable", "--no-project", "-q")
    venv = stage / VENV
    run_uv(
        "making the environment", ("venv", *options, "--python", base_python(), str(venv)), stage, progress
    )
    return venv


def publish(
    lock: locks.PackageLock, preload: Sequence[str], stage: Path, kept: EnvironmentStore, progress: Progress
) -> BuiltEnvironment:
    """Makes what is installed in a stage the environment of its lock. Raises UnfitEnvironmentError."""
    digest = lock.digest(preload)
    packages = _checked("this environment", site_of(str(stage / VENV)), preload)
    final = str(kept.root / digest / VENV)
    built = _built(preload, digest, final, packages, lock=lock.text, size=size_of(stage))
    kept.publish(stage, built)
    progress(f"built environment {digest[:12]}: {len(packages)} packages")
    return built


def _built(
    preload: Sequence[str],
    digest: str,
    venv: str,
    packages: tuple[str, ...],
    *,
    lock: str,
    size: int,
) -> BuiltEnvironment:
    return BuiltEnvironment(
        digest=digest,
        venv=venv,
        python=locks.python_tag(),
        platform=locks.platform_tag(),
        preload=tuple(preload),
        packages=packages,
        lock=lock,
        size=size,
        built=time.time(),
    )


def _checked(what: str, site: str, preload: Sequence[str]) -> tuple[str, ...]:
    """The packages there, if a worker can run with them. Raises UnfitEnvironmentError."""
    packages = installed(site)
    if reason := locks.unfit(packages):
        raise UnfitEnvironmentError(what, reason)
    for name in preload:
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and PathFinder.find_spec(top, [site]) is None:
            raise UnfitEnvironmentError(what, f"no package of it has the module {top!r}, which preload names")
    return packages


# -- virtual environments that lie elsewhere --


def _adopted(environment: Environment, kept: EnvironmentStore) -> BuiltEnvironment:
    venv = Path(environment.path).absolute()
    what = f"virtual environment {venv}"
    check_venv(what, venv)
    packages = _checked(what, site_of(str(venv)), environment.preload)
    content = {"installed": installed_content(what, Path(site_of(str(venv)))), "venv": str(venv)}
    digest = locks.digest_of(content, environment.preload)
    there = kept.get(digest)
    if there is None:
        with kept.building(digest) as stage:
            if (there := kept.get(digest)) is None:
                there = _built(environment.preload, digest, str(venv), packages, lock="", size=size_of(venv))
                kept.publish(stage, there)
    return there


def check_venv(what: str, venv: Path) -> None:
    """Raises UnfitEnvironmentError unless this process's Python has made it, without system site packages."""
    try:
        lines = (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UnfitEnvironmentError(
            what, "it has no pyvenv.cfg; name the folder that `python -m venv` made"
        ) from None
    said = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    if said.get("include-system-site-packages", "false").lower() == "true":
        raise UnfitEnvironmentError(what, "it also has the packages of its Python; make one without these")
    made_by = os.path.realpath(venv / "bin" / "python")
    if made_by != base_python():
        raise UnfitEnvironmentError(
            what, f"it was made by {made_by}, and jails run in {base_python()}; make one with that"
        )


def installed_content(what: str, site: Path) -> list[str]:
    """The installers' records there: names and checksums of all files. Raises UnfitEnvironmentError."""
    found = []
    for folder in sorted(site.glob("*.dist-info")):
        direct = folder / "direct_url.json"
        if direct.is_file() and _is_editable(direct):
            raise UnfitEnvironmentError(
                what,
                f"{folder.name.partition('-')[0]} is installed editable: its files lie elsewhere, where no jail sees "
                f"them; install it as a wheel",
            )
        record = folder / "RECORD"
        found.append(f"{folder.name} {sha256(record.read_bytes()).hexdigest() if record.is_file() else ''}")
    return found


def _is_editable(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_bytes()).get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def check_unchanged(built: BuiltEnvironment, kept: EnvironmentStore) -> None:
    """Raises UnfitEnvironmentError if it has changed since it was built."""
    what = f"environment {built.digest[:12]}"
    if (owner := (kept.root / built.digest).stat().st_uid) not in (0, os.geteuid()):
        raise UnfitEnvironmentError(
            what, f"it belongs to user {owner}; set CENOTE_ENVIRONMENTS to a folder of your own"
        )
    check_venv(what, Path(built.venv))
    if built.venv.startswith(f"{kept.root}/"):
        return  # nothing writes there
    content = {"installed": installed_content(what, Path(built.site)), "venv": built.venv}
    if locks.digest_of(content, built.preload) != built.digest:
        raise UnfitEnvironmentError(
            what,
            f"the packages of {built.venv} have changed since; build it again, which gives another environment",
        )


def pinned(policy: SandboxPolicy) -> SandboxPolicy:
    """The policy with its environment by digest, built if need be. Blocks during the build.

    Raises what `build` raises, UnknownEnvironmentError.
    """
    wanted = policy.environment
    if wanted is None or (isinstance(wanted, str) and is_digest(wanted)):
        return policy
    return replace(policy, environment=built_or_build(wanted).digest)


def built_or_build(wanted: Environment | str, kept: EnvironmentStore | None = None) -> BuiltEnvironment:
    """A policy's environment. Blocks during a build. Raises what `build` raises, UnknownEnvironmentError."""
    kept = kept or EnvironmentStore()
    return kept.find(wanted) if isinstance(wanted, str) else build(wanted, kept=kept)


def interpreter_of(built: BuiltEnvironment, kept: EnvironmentStore) -> Interpreter:
    """The standard library, what the worker needs, then the packages of the environment, and nothing else.

    The first two come first, so that no package can stand in for a module of a zygote: that starts outside the walls.
    Raises UnfitEnvironmentError, UnavailableError.
    """
    check_unchanged(built, kept)
    try:
        worker, targets = worker_folder(kept.root)
    except OSError as error:
        raise UnavailableError(f"what jails of environments need cannot be written: {error}") from error
    own = (sysconfig.get_path("stdlib"), sysconfig.get_config_var("DESTSHARED"), str(worker))
    prefixes = (built.venv, sys.base_prefix, sys.base_exec_prefix)
    found = describe(f"{built.venv}/bin/python", (), prefixes)
    return replace(
        found,
        search=(*own, built.site),
        outside=own,
        visible=tuple(dict.fromkeys((*found.visible, str(worker), *targets))),
        prefix=built.venv,
    )
