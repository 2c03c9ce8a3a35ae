"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.orchestrator.fixtures import pytest_runtest_makereport, team

__all__ = ["pytest_runtest_makereport", "team"]
