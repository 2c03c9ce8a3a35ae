"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.gvisor.fixtures import gvisor

__all__ = ["gvisor"]
