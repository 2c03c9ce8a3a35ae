"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.checkpoints.fixtures import folder, make_runtime

__all__ = ["folder", "make_runtime"]
