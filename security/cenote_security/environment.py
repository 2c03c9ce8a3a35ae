"""What packages a jail has, where these are not the client's own. Values only; nothing here touches the machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import PurePath
from typing import Final

from cenote_security.errors import UsageError
from cenote_security.options import Options, option

DIGEST_LENGTH: Final = 64
"""Of the digest of an environment, in hexadecimal digits."""

_REFERENCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][^\r\n\0]{0,999}")
_PYTHON: Final = re.compile(r"3\.[0-9]{1,3}(\.[0-9]{1,3})?")
_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_SOURCES: Final = ("requirements", "lockfile", "path")
_OF_A_BUILD: Final = ("index", "find_links", "offline")


def is_reference(text: str) -> bool:
    """Whether a text may be the name or the digest of an environment."""
    return _REFERENCE.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    """Whether a text is the digest of an environment."""
    return re.fullmatch(rf"[0-9a-f]{{{DIGEST_LENGTH}}}", text) is not None


@dataclass(frozen=True)
class Environment(Options):
    """The packages of a jail: by requirements, by a lock file, or by a virtual environment that exists.

    It is built once per machine, and known by a digest of its content; see docs/environments.md.
    """

    whose = "an environment's"

    requirements: Sequence[str] = option(
        (),
        help="packages as pip takes them; resolved once to exact versions with hashes. Only wheels are installed: "
        "no code of a package runs while an environment is built",
        wanted='a list of requirements, such as Environment(["pandas==2.2.3", "tabulate"])',
        valid=lambda given: all(_REQUIREMENT.fullmatch(each) for each in given),
    )
    _: KW_ONLY
    lockfile: str = option(
        "",
        help="instead: a `uv.lock` with its `pyproject.toml`, a `pylock.toml`, or a requirements file with hashes",
        wanted="the path of a lock file",
    )
    path: str = option(
        "",
        help="instead: the folder of a virtual environment, made by the same Python. It stays where it is",
        wanted="the path of a virtual environment",
    )
    python: str = option(
        "",
        help='the version that it is meant for, such as "3.12". One that is not the version of the process that '
        "starts jails is refused",
        wanted='a version such as "3.12"',
        valid=lambda text: not text or _PYTHON.fullmatch(text) is not None,
    )
    preload: Sequence[str] = option(
        (),
        help="modules that the zygote of this environment imports once, besides those of the policy's `preload`",
        wanted='a list of module names, such as ("polars",)',
        valid=lambda given: all(_MODULE.fullmatch(each) for each in given),
    )
    index: str = option(
        "",
        help="URL of the package index that is asked; by default what uv is configured with, else PyPI",
        wanted='a URL, such as "https://pypi.org/simple"',
        valid=lambda text: not text or re.fullmatch(r"(https?|file)://\S+", text) is not None,
    )
    find_links: Sequence[str] = option(
        (), help="folders, or URLs of pages, with wheels", wanted="a list of folders or URLs"
    )
    offline: bool = option(
        False, help="no index is asked, and nothing is downloaded: wheels are those of `find_links`"
    )

    def __post_init__(self) -> None:
        for name in ("lockfile", "path"):
            if isinstance(given := getattr(self, name), PurePath):
                object.__setattr__(self, name, str(given))
        wrong = self.checked()
        if not wrong:
            sources = [name for name in _SOURCES if getattr(self, name)]
            if len(sources) > 1:
                wrong.note(UsageError(f"an environment has {' or '.join(sources)}, not both"))
            if not sources:
                wrong.note(
                    UsageError(
                        "an environment needs its packages: requirements=[...], lockfile=... or path=..."
                    )
                )
            if self.path and (besides := [name for name in _OF_A_BUILD if getattr(self, name)]):
                wrong.note(
                    UsageError(
                        f"a virtual environment that exists is not built; leave out {besides[0]}, or path"
                    )
                )
        wrong.raise_all()
