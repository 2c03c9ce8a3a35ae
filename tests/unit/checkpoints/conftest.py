"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.checkpoints.fixtures import folder

__all__ = ["folder"]
