"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.kernel.fixtures import failing, good, kernel, process, run, sink

__all__ = ["failing", "good", "kernel", "process", "run", "sink"]
