"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.shared_runtime.fixtures import forgetful, gate, good, runtime, start, waiting

__all__ = ["forgetful", "gate", "good", "runtime", "start", "waiting"]
