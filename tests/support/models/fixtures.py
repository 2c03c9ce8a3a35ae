"""Shared by the tests of models: waits that take no time."""

from __future__ import annotations

import pytest
from tests.fakes.naps import Naps


@pytest.fixture
def naps() -> Naps:
    return Naps()
