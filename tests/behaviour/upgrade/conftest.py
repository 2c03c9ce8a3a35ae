"""A copy of what 0.1.0 has written, and what that release reads."""

from __future__ import annotations

import platform
import tarfile
from pathlib import Path
from typing import Final

import pytest

ARCHIVE: Final = (Path(__file__).resolve().parents[2] / "support" / "upgrade") / "0.1.0.tar.xz"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `embedded` and `platform`, with the modes that they had. Classes in them are code of one Python."""
    if not platform.python_version().startswith("3.11."):
        pytest.skip("0.1.0 wrote it with Python 3.11")
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="tar")
    return folder
