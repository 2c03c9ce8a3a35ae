"""Shared by the tests of models: the path to the fakes, and waits that take no time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(
    str(Path(__file__).resolve().parents[1])
)  # `fakes` holds no tests, so pytest doesn't import it

from fakes.naps import Naps


@pytest.fixture
def naps() -> Naps:
    return Naps()
