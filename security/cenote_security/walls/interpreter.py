"""Which host paths hold the Python that a jail runs: its prefixes and the packages that it may import.

Not the client's whole `sys.path`: a project's own folder, which may hold anything, stays outside. What an installer
has put into any other folder on the path (`pip install --target`, with PYTHONPATH or a `.pth` file) is a library.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

OWN_PACKAGES: Final = ("cenote_worker", "cenote_security", "cenote_proto")
"""The packages of this project that are loaded inside a jail. An editable install has them outside any prefix."""

_PARTS_OF_A_PREFIX: Final = ("bin", "lib", "lib64", "share", "pyvenv.cfg")
_LIBRARY_FOLDERS: Final = ("site-packages", "dist-packages")
_WITH_NUMPY: Final = ("numpy", "numpy.libs", "pandas", "pandas.libs", "dateutil", "six.py", "pytz", "tzdata")
"""Packages that each jail preloads, and what these import: libraries also without their records."""

_BESIDE_LIBRARIES: Final = frozenset({"bin", "share", "__pycache__"})
"""What installers put next to the packages."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """executable: absolute path. search: `sys.path` in a jail. visible: host paths that must be readable there.

    outside: `sys.path` of a zygote until the walls around it are up, if not the same. prefix: of the virtual
    environment of the jail, if that is not this process's: what its start-up files say is not carried out.
    """

    executable: str
    search: tuple[str, ...]
    visible: tuple[str, ...]
    outside: tuple[str, ...] = ()
    prefix: str = ""


def running(folders: Sequence[str] = ()) -> Interpreter:
    """The interpreter of this process, as a jail should see it. folders: shown and searched besides."""
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    found = describe(sys.executable, sys.path, prefixes)
    return replace(found, search=(*found.search, *folders), visible=(*found.visible, *folders))


def describe(executable: str, search: Sequence[str], prefixes: Iterable[str]) -> Interpreter:
    """Sort a search path into what a jail needs and what is the project's own."""
    roots = _with_real_paths(prefixes)
    parts = [f"{root.rstrip('/')}/{part}" for root in roots for part in _PARTS_OF_A_PREFIX]
    kept: list[str] = []
    visible = [part for part in parts if os.path.lexists(part)]
    for entry in filter(os.path.isabs, search):
        if _is_library(entry, parts):
            kept.append(entry)
            visible.append(entry)
        elif names := installed_names(entry):
            kept.append(entry)
            visible.extend(_shown(entry, names))
        elif own := [f"{entry}/{name}" for name in OWN_PACKAGES if Path(entry, name).is_dir()]:
            kept.append(entry)
            visible.extend(own)
    return Interpreter(
        executable=executable, search=tuple(dict.fromkeys(kept)), visible=tuple(dict.fromkeys(visible))
    )


@lru_cache(maxsize=256)
def installed_names(folder: str) -> frozenset[str]:
    """The packages and modules of a folder that an installer has put there, by what its records list; and numpy.

    Empty for a project's folder: an editable install has its records elsewhere.
    """
    names: set[str] = set()
    for record in Path(folder).glob("*.dist-info/RECORD"):
        names.add(record.parent.name)
        with suppress(OSError), record.open(encoding="utf-8", errors="surrogateescape") as lines:
            names.update(line.lstrip('"').partition("/")[0].partition(",")[0] for line in lines)
    if any(Path(folder, "numpy").glob("*core/_multiarray_umath*.so")):
        names.update(name for name in _WITH_NUMPY if Path(folder, name).exists())
    return frozenset(names - {"", "..", "."})


def is_installed(file: str, search: Iterable[str]) -> bool:
    """Whether an installer has put a module's file into one of these folders, so that jails see it there."""
    for folder in filter(os.path.isabs, search):
        start = folder.rstrip("/") + "/"
        if not file.startswith(start):
            continue
        if Path(folder).name in _LIBRARY_FOLDERS:
            return True
        if file[len(start) :].partition("/")[0] in installed_names(folder):
            return True
    return False


def _shown(folder: str, names: frozenset[str]) -> list[str]:
    """The folder if nothing else is in it; else what is installed there, and no file of a project around it."""
    there = {path.name for path in Path(folder).iterdir()}
    if there <= names | _BESIDE_LIBRARIES:
        return [folder]
    return [f"{folder.rstrip('/')}/{name}" for name in sorted(names & there)]


def _with_real_paths(paths: Iterable[str]) -> list[str]:
    both = [variant for path in paths for variant in (path, os.path.realpath(path))]
    return list(dict.fromkeys(both))


def _is_library(entry: str, parts: Sequence[str]) -> bool:
    if Path(entry).name in _LIBRARY_FOLDERS:
        return True
    return any(entry == part or entry.startswith(part + "/") for part in parts)
