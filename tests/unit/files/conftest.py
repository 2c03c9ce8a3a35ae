"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.files.fixtures import level, make_runtime, runtime

__all__ = ["level", "make_runtime", "runtime"]
