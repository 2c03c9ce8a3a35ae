"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.tracking.fixtures import alone, in_process, steps

__all__ = ["alone", "in_process", "steps"]
