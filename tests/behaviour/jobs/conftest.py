"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.jobs.fixtures import _standing, studio

__all__ = ["_standing", "studio"]
