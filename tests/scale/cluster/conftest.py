"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.cluster.fixtures import platform

__all__ = ["platform"]
