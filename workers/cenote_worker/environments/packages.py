"""An environment's exact packages, and those that a worker itself needs.

They are resolved by uv, or read from a lock file, in a canonical form whose hash names the environment. A jail of an
environment has those, Cenote's own packages and the few that its worker needs, and nothing else of the client's.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final

from cenote_security.environment import Environment
from cenote_security.walls.interpreter import OWN_PACKAGES
from cenote_worker.environments.errors import UnfitEnvironmentError
from cenote_worker.environments.uv_unsafe import Progress, base_python, run_uv

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "cloudpickle": ("cloudpickle",),
    "protobuf": ("google.protobuf", "google._upb"),
    "xxhash": ("xxhash",),
}
"""Projects, with the modules of each."""

_RANGE: Final = re.compile(r"([A-Za-z0-9._-]+)\s*((?:[<>]=?[0-9.]+,?)+)\s*")


def constraints() -> dict[str, str]:
    """The versions that the worker works with, by project, such as `>=7.36,<8`."""
    try:
        required = metadata.requires("cenote") or ()
    except metadata.PackageNotFoundError:  # Cenote runs from its sources
        return {}
    found = (_RANGE.fullmatch(each) for each in required)
    return {match[1]: match[2] for match in found if match is not None and match[1] in _NEEDED}


def unfit(packages: Iterable[str]) -> str:
    """The packages, as `name==version`, with which no worker works, in one sentence; empty for none."""
    wanted = constraints()
    for package in packages:
        name, _, version = package.partition("==")
        if name in wanted and not _is_within(version, wanted[name]):
            return (
                f"it has {name} {version}, and the worker, which is in the same process, needs "
                f"{name}{wanted[name]}; choose packages that can do with that"
            )
    return ""


def _is_within(version: str, bounds: str) -> bool:
    return all(
        _holds(_numbers(version), *re.split(r"(?<=[<>=])(?=[0-9])", bound)) for bound in bounds.split(",")
    )


def _holds(version: tuple[int, ...], sign: str, bound: str) -> bool:
    limit = _numbers(bound)
    width = max(len(version), len(limit))
    left, right = (each + (0,) * (width - len(each)) for each in (version, limit))
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def worker_folder(root: Path) -> tuple[Path, tuple[str, ...]]:
    """A folder below `root` from which workers import all that they need, and the targets of its links. It is made if
    need be.

    Raises OSError.
    """
    targets = _targets()
    folder = root / "worker" / sha256(repr(sorted(targets.items())).encode()).hexdigest()[:16]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(dir=folder.parent))
        made.chmod(0o755)
        for place, target in targets.items():
            (made / place).parent.mkdir(exist_ok=True)
            (made / place).symlink_to(target)
        for inner in {(made / place).parent for place in targets}:
            inner.chmod(0o755)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            rmtree(made)
            if not folder.is_dir():
                raise
    return folder, tuple(targets.values())


def _targets() -> dict[str, str]:
    """The target of each link, by its path in the folder."""
    found: dict[str, str] = {}
    for module in (*OWN_PACKAGES, *(module for modules in _NEEDED.values() for module in modules)):
        spec = find_spec(module)
        if spec is None:
            continue  # protobuf without its compiled part
        if spec.submodule_search_locations:
            found[module.replace(".", "/")] = str(
                Path(next(iter(spec.submodule_search_locations))).absolute()
            )
        elif spec.origin is not None:
            place = "/".join((*module.split(".")[:-1], Path(spec.origin).name))
            found[place] = str(Path(spec.origin).absolute())
    return found


_FORMAT: Final = 1
"""Version of the hashed form. Another one gives other digests."""

_MOST: Final = 16 * 2**20
"""Bytes of a lock file: large projects have one or two million."""

_PINNED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^]]*\])?\s*(==\s*[^\s;*]+|@\s*\S+)\s*(;.*)?")


@dataclass(frozen=True, kw_only=True)
class PackageLock:
    """file: the name under which uv reads it. text: in canonical form, with a hash for each file."""

    file: str
    text: str

    def digest(self, preload: Sequence[str]) -> str:
        """The content address of the environment built from it here."""
        return digest_of({"file": self.file, "lock": self.text}, preload)


def digest_of(content: dict[str, Any], preload: Sequence[str]) -> str:
    """Digest of an environment with that content on this platform."""
    told = {"format": _FORMAT, "python": python_tag(), "platform": platform_tag(), "preload": sorted(preload)}
    return sha256(json.dumps(told | content, sort_keys=True).encode()).hexdigest()


def python_tag() -> str:
    """The Python that compiled packages are for."""
    return f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"


def platform_tag() -> str:
    return f"{sysconfig.get_platform()}-{platform.libc_ver()[0] or 'other'}"


def resolved(environment: Environment, folder: Path, progress: Progress) -> PackageLock:
    """The lock of an environment that has requirements or a lock file. folder: for uv's files.

    Raises EnvironmentBuildError, UnfitEnvironmentError, MissingExtraError.
    """
    if environment.lockfile:
        return _read(Path(environment.lockfile).absolute(), progress)
    progress(f"resolving {len(environment.requirements)} requirements")
    bounds = folder / "constraints.txt"
    bounds.write_text("".join(f"{name}{bound}\n" for name, bound in constraints().items()), encoding="utf-8")
    options = ("--generate-hashes", "--no-header", "--no-annotate", "--only-binary", ":all:", "--no-sources")
    text = run_uv(
        "resolving the requirements",
        ("pip", "compile", "-", *options, "--python", base_python(), "-c", str(bounds), "-q",
         *index_options(environment)),
        folder,
        progress,
        "\n".join(environment.requirements) + "\n",
    )  # fmt: skip
    return plain_lock("the resolved requirements", text)


def index_options(environment: Environment) -> Iterator[str]:
    """uv's options for package indexes."""
    if environment.index:
        yield from ("--default-index", environment.index)
    for place in environment.find_links:
        yield from ("--find-links", place if "://" in place else str(Path(place).absolute()))
    if environment.offline:
        yield from ("--offline", "--no-index")


def _read(file: Path, progress: Progress) -> PackageLock:
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST + 1)
        if len(data) > _MOST:
            raise UnfitEnvironmentError(f"lock file {file}", f"it has more than {_MOST} bytes")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UnfitEnvironmentError(f"lock file {file}", str(error)) from None
    if file.name == "uv.lock":
        if not (file.parent / "pyproject.toml").is_file():
            raise UnfitEnvironmentError(f"lock file {file}", "uv reads it with the pyproject.toml beside it")
        progress(f"reading {file}")
        options = ("--frozen", "--no-dev", "--no-emit-project", "--no-header", "--no-annotate")
        text = run_uv(
            f"reading {file}",
            ("export", *options, "--format", "requirements.txt", "--python", base_python(), "-q"),
            file.parent,
            progress,
        )
        return plain_lock(f"lock file {file}", text)
    return checked_lock(str(file), text)


def checked_lock(file: str, text: str) -> PackageLock:
    """The text of a lock file, in canonical form. file: its name or path. Raises UnfitEnvironmentError."""
    what = f"lock file {file:.200}"
    if re.fullmatch(r"pylock(\.[^.]+)?\.toml", Path(file).name):
        return PackageLock(file="pylock.toml", text=_checked_pylock(what, text))
    return plain_lock(what, text)


def plain_lock(what: str, text: str) -> PackageLock:
    """A requirements file with hashes in canonical form: no comments, sorted. Raises UnfitEnvironmentError."""
    lines = []
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        words = re.sub(r"(^|\s)#.*", "", line).strip()
        if not words:
            continue
        if words.startswith("-"):
            raise UnfitEnvironmentError(
                what,
                f"{words[:80]!r} is an option; name an index with index=..., and packages by their versions",
            )
        requirement, *hashes = re.split(r"(?<!\s)\s++--hash=", words)
        requirement = " ".join(requirement.split())
        if not hashes or not all(
            re.fullmatch(r"sha(256|384|512):[0-9a-f]+", each.strip()) for each in hashes
        ):
            raise UnfitEnvironmentError(
                what, f"{requirement[:80]!r} has no hash; `uv pip compile --generate-hashes` writes them"
            )
        if _PINNED.fullmatch(requirement) is None:
            raise UnfitEnvironmentError(what, f"{requirement[:80]!r} names no exact version")
        lines.append(" ".join((requirement, *(f"--hash={each.strip()}" for each in sorted(hashes)))))
    if not lines:
        raise UnfitEnvironmentError(what, "it names no package")
    return PackageLock(file="requirements.txt", text="\n".join(sorted(set(lines))) + "\n")


def _checked_pylock(what: str, text: str) -> str:
    """The text unchanged, if all its packages are wheels with hashes."""
    try:
        packages = tomllib.loads(text).get("packages", [])
        names = [each["name"] for each in packages if not each.get("wheels")]
        bare = [
            each["name"] for each in packages for wheel in each.get("wheels", ()) if not wheel.get("hashes")
        ]
    except (tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError) as error:
        raise UnfitEnvironmentError(what, f"it is no pylock.toml: {error}") from None
    if names:
        raise UnfitEnvironmentError(
            what, f"it has no wheel of {names[0]}, and nothing is built from sources here"
        )
    if bare:
        raise UnfitEnvironmentError(
            what, f"a wheel of {bare[0]} has no hash; `uv pip compile -o pylock.toml` writes them"
        )
    return text
