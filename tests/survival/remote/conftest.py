"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.remote.fixtures import cable, connect, own_platform, platform

__all__ = ["cable", "connect", "own_platform", "platform"]
