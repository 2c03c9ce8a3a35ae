"""A machine's environments in a folder of the test, and wheels to build them from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.environments.wheels import write_wheel

from cenote_security.environment import Environment
from cenote_worker.environments.store import EnvironmentStore

VERSIONS = ("1.0", "2.0")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of environments for this module's tests, and uv's files."""
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CENOTE_ENVIRONMENTS", str(folder / "environments"))
        patch.setenv("UV_CACHE_DIR", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def kept(place: Path) -> EnvironmentStore:
    return EnvironmentStore()


@pytest.fixture(scope="module")
def wheels(place: Path) -> Path:
    """`greeting` in two versions, which needs `tone`; `tone` has a start-up file that would leave a trace."""
    folder = place / "wheels"
    trace = place / "trace"
    for version in VERSIONS:
        write_wheel(
            folder,
            "greeting",
            version,
            {"greeting/__init__.py": f"import tone\nVERSION = {version!r}\n", "greeting/deep.py": "1 + 1\n"},
            requires=["tone"],
        )
    write_wheel(
        folder,
        "tone",
        "1.5",
        {"tone.py": "LOUD = True\n", "tone.pth": f"import pathlib; pathlib.Path({str(trace)!r}).touch()\n"},
    )
    return folder


@pytest.fixture(scope="module")
def of(wheels: Path):
    """An environment of these wheels, by requirements."""

    def make(*requirements: str, **more: object) -> Environment:
        return Environment(requirements, find_links=[str(wheels)], offline=True, **more)  # type: ignore[arg-type]

    return make
