"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.models.fixtures import naps

__all__ = ["naps"]
