"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.egress.fixtures import world

__all__ = ["world"]
