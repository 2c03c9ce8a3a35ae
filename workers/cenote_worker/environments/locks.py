"""An environment's exact packages: resolved by uv, or read from a lock file, in one spelling whose hash names it."""

from __future__ import annotations

import json
import platform
import re
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from cenote_security.environment import Environment
from cenote_worker.environments.errors import UnfitEnvironmentError
from cenote_worker.environments.programs_unsafe import Progress, base_python, run_uv
from cenote_worker.environments.worker_packages import constraints

_FORMAT: Final = 1
"""Of what is hashed. Another one gives other digests."""

_MOST: Final = 16 * 2**20
"""Bytes of a lock file: those of large projects have one or two million."""

_PINNED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^]]*\])?\s*(==\s*[^\s;*]+|@\s*\S+)\s*(;.*)?")


@dataclass(frozen=True, kw_only=True)
class Lock:
    """file: the name under which uv reads it. text: in the one spelling, with a hash for each file."""

    file: str
    text: str

    def digest(self, preload: Sequence[str]) -> str:
        """The content address of what is built from it here."""
        return digest_of({"file": self.file, "lock": self.text}, preload)


def digest_of(content: dict[str, Any], preload: Sequence[str]) -> str:
    """Of an environment with that content on this platform."""
    told = {"format": _FORMAT, "python": python_tag(), "platform": platform_tag(), "preload": sorted(preload)}
    return sha256(json.dumps(told | content, sort_keys=True).encode()).hexdigest()


def python_tag() -> str:
    """The Python that compiled packages are for."""
    return f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"


def platform_tag() -> str:
    return f"{sysconfig.get_platform()}-{platform.libc_ver()[0] or 'other'}"


def resolved(environment: Environment, folder: Path, progress: Progress) -> Lock:
    """The lock of an environment that has requirements or a lock file. folder: for what uv writes.

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
    return _plain("the resolved requirements", text)


def index_options(environment: Environment) -> Iterator[str]:
    """Where uv looks for packages."""
    if environment.index:
        yield from ("--default-index", environment.index)
    for place in environment.find_links:
        yield from ("--find-links", place if "://" in place else str(Path(place).absolute()))
    if environment.offline:
        yield from ("--offline", "--no-index")


def _read(file: Path, progress: Progress) -> Lock:
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
        return _plain(f"lock file {file}", text)
    if re.fullmatch(r"pylock(\.[^.]+)?\.toml", file.name):
        return Lock(file="pylock.toml", text=_checked_pylock(file, text))
    return _plain(f"lock file {file}", text)


def _plain(what: str, text: str) -> Lock:
    """A requirements file with hashes in one spelling: no comments, sorted. Raises UnfitEnvironmentError."""
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
        requirement, *hashes = re.split(r"\s+--hash=", words)
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
    return Lock(file="requirements.txt", text="\n".join(sorted(set(lines))) + "\n")


def _checked_pylock(file: Path, text: str) -> str:
    """As it is, if all its packages are wheels with hashes."""
    try:
        packages = tomllib.loads(text).get("packages", [])
        names = [each["name"] for each in packages if not each.get("wheels")]
    except (tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError) as error:
        raise UnfitEnvironmentError(f"lock file {file}", f"it is no pylock.toml: {error}") from None
    if names:
        raise UnfitEnvironmentError(
            f"lock file {file}", f"it has no wheel of {names[0]}, and nothing is built from sources here"
        )
    return text
