"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.commands.fixtures import cenote, cenote_command

__all__ = ["cenote", "cenote_command"]
