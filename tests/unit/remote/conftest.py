"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.remote.fixtures import platform

__all__ = ["platform"]
