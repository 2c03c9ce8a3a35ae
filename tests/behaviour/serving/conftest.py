"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.serving.fixtures import make_world, world

__all__ = ["make_world", "world"]
