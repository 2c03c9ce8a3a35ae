"""A namespace stored by an earlier version of Cenote is restored completely: the names in its pickles are found."""

from __future__ import annotations

import platform
import tarfile
from pathlib import Path

import pytest
from tests.house.formats.namespace import ANSWER, NAMESPACES, QUESTION
from tests.house.formats.test_stored_formats import WRITTEN_WITH
from tests.house.formats.written import SANDBOX

from cenote.runtime import PythonRuntime


@pytest.mark.skipif(
    not platform.python_version().startswith(f"{WRITTEN_WITH}."), reason="classes are code of one Python"
)
@pytest.mark.parametrize("archive", sorted(NAMESPACES.glob("*.tar.xz")), ids=lambda path: path.name[:10])
def test_values_of_many_kinds_are_restored(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    with PythonRuntime.restore(tmp_path / "store", "r", sandbox=SANDBOX) as runtime:
        assert runtime.execute(QUESTION).value == ANSWER
