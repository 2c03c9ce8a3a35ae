"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.orchestrator.fixtures import _studio, own_studio, pytest_runtest_makereport, studio, team

__all__ = ["_studio", "own_studio", "pytest_runtest_makereport", "studio", "team"]
