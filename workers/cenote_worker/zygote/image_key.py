"""What an image of a process depends on besides its own bytes: the environment of the zygote that its jail came from.

An image refers to files by path, and its code goes on in the middle: with the interpreter, the libraries, the modules
and the clock that it had. A jail of another zygote can become it if all of that is the same there. A key is a digest
for each part, so that the part that differs can be named.

The files that the image itself maps are compared once more when a jail becomes it, see `image/image.c`: a program may
have loaded other ones than its zygote.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Final

from cenote_security.walls.level import LevelName
from cenote_worker.transport.chunks import digest
from cenote_worker.zygote.spec import ZygoteSpec

_DIFFERENCES: Final = {
    "machine": "the machine is another one, or was started again",
    "processor": "its processor has other features",
    "python": "the interpreter, its C library or its options are others",
    "form": "this version of Cenote writes images in another form",
    "jail": "jails begin with other modules, folders or mounts",
    "modules": "Python files or installed packages are not what they were",
    "libraries": "libraries are not what they were",
}
"""The parts of a key, with what it means that one differs. Monotonic clocks begin anew with the machine."""

_PROCESSOR: Final = 8192
"""Bytes of `cpuinfo` that surely have the first processor's features, where there may be hundreds of processors."""

_FEATURES: Final = re.compile(rb"^(?:vendor_id|cpu family|model|flags)\s*:.*$", re.MULTILINE)
_MAPPED: Final = re.compile(rb" (/[^\n]*+)$", re.MULTILINE)
_PACKAGE: Final = (".dist-info", ".egg-info")


def image_key(spec: ZygoteSpec, level: LevelName, host_proc: int, library: Path) -> str:
    """The key of this zygote, which has loaded its modules.

    host_proc: a descriptor of `/proc`. library: what writes images. Raises OSError, ValueError.
    """
    told = {name: value for name, value in asdict(spec).items() if name not in ("client", "held", "lingers")}
    parts: dict[str, Iterable[object]] = {
        **_machine(host_proc),
        "python": [sys.version, str(sys.flags), os.confstr("CS_GNU_LIBC_VERSION"), os.sysconf("SC_PAGESIZE")],
        "form": [library.read_bytes()],
        "jail": [json.dumps(told, sort_keys=True), level],
        "modules": [*_described(_module_files()), *_packages(spec.search)],
        "libraries": _described(
            {os.fsdecode(path) for path in _MAPPED.findall(_read(host_proc, "self/maps"))}
        ),
    }
    return _key(parts)


def _machine(proc: int) -> dict[str, list[bytes]]:
    return {
        "machine": [_read(proc, "sys/kernel/random/boot_id"), _read(proc, "sys/kernel/version")],
        "processor": _FEATURES.findall(_read(proc, "cpuinfo", _PROCESSOR)[:_PROCESSOR])[:4],
    }


def _key(parts: Mapping[str, Iterable[object]]) -> str:
    return " ".join(f"{name}={digest(repr(list(facts)).encode()).hex()}" for name, facts in parts.items())


def difference_here(key: str) -> str:
    """As `difference`, why no jail of this machine has that key, whatever its environment. Raises OSError."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        here = _parts(_key(_machine(proc)))
    finally:
        os.close(proc)
    theirs = _parts(key)
    return next((_DIFFERENCES[name] for name in here if here[name] != theirs.get(name)), "")


def difference(one: str, other: str) -> str:
    """Why an image with one key does not fit jails with the other, as a clause; empty if it does. Pure."""
    if one == other:
        return ""
    mine, theirs = _parts(one), _parts(other)
    for name, meaning in _DIFFERENCES.items():
        if mine.get(name) != theirs.get(name):
            return meaning
    return _DIFFERENCES["form"]


def _parts(key: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in key.split(" "))


def _module_files() -> Iterator[str]:
    for module in list(sys.modules.values()):
        # Not by attribute: that may run a module's code.
        path = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(path, str):
            yield path


def _packages(search: Iterable[str]) -> Iterator[str]:
    """Names with versions."""
    for folder in search:
        with suppress(OSError):
            yield from sorted(name for name in os.listdir(folder) if name.endswith(_PACKAGE))  # noqa: PTH208


def _described(paths: Iterable[str]) -> Iterator[tuple[str, int, int, int]]:
    """What changes with a file's contents, as cheap as it can be had."""
    for path in sorted(set(paths)):
        try:
            found = Path(path).stat()
        except OSError:  # one without a path, as memory files
            continue
        yield path, found.st_ino, found.st_size, found.st_mtime_ns


def _read(proc: int, name: str, most: int = -1) -> bytes:
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as file:
        return file.read(most)
