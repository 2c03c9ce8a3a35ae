"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.shared_runtime.fixtures import runtime

__all__ = ["runtime"]
