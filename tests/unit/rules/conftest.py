"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.rules.fixtures import corpus

__all__ = ["corpus"]
