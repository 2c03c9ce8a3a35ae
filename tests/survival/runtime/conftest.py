"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.runtime.fixtures import make_runtime, runtime

__all__ = ["make_runtime", "runtime"]
