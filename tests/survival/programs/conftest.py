"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.programs.fixtures import _runtimes, strict, walled

__all__ = ["_runtimes", "strict", "walled"]
