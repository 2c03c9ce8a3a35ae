"""The wheel that users install contains what it needs and nothing else."""

from __future__ import annotations

import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Paths in a wheel built here, without network access."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_four_packages_are_at_the_top(names: set[str]) -> None:
    """No source root, no test and no loose module is installed."""
    top = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert {"cenote", "cenote_worker", "cenote_security", "cenote_proto"} == top


def test_the_demo_finds_its_data(names: set[str]) -> None:
    """The data set is installed with its provenance."""
    data = "cenote/demo/data"
    assert {f"{data}/penguins-raw.csv", f"{data}/README.md"} <= names


def test_types_and_licence_are_shipped(names: set[str]) -> None:
    """Type checkers read our types; the licence goes with the code."""
    packages = ("cenote", "cenote_worker", "cenote_security")
    assert {f"{package}/py.typed" for package in packages} <= names
    assert [] != [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="it is built for x86-64")
def test_the_compiled_file_is_shipped(names: set[str]) -> None:
    """With its source, which documents it."""
    folder = "cenote_worker/image"
    assert {f"{folder}/libcenote-image.so", f"{folder}/image.c", f"{folder}/README.md"} <= names
