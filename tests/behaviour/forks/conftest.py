"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.checkpoints.fixtures import leave_zygotes
from tests.support.forks.fixtures import by_value, closing, fork, make

__all__ = ["by_value", "closing", "fork", "leave_zygotes", "make"]
