"""What a worker itself needs of other projects, beside the packages of an environment.

A jail of an environment has Cenote's own packages and these few, and nothing else of the client's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final

from cenote_security.walls.interpreter import OWN_PACKAGES

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
    except metadata.PackageNotFoundError:  # run from its sources
        return {}
    found = (_RANGE.fullmatch(each) for each in required)
    return {match[1]: match[2] for match in found if match is not None and match[1] in _NEEDED}


def unfit(packages: Iterable[str]) -> str:
    """Which of the packages, as `name==version`, no worker works with, in one sentence; empty for none."""
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
    """A folder below `root` from which workers import all that they need, and what its links lead to. It is made if
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
    """By places in the folder: where it is now."""
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
