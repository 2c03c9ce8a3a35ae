"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.tracking.fixtures import in_process, steps

__all__ = ["in_process", "steps"]
