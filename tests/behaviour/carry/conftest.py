"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.carry.fixtures import runtime

__all__ = ["runtime"]
