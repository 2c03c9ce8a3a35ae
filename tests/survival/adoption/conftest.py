"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.adoption.fixtures import node, supervising

__all__ = ["node", "supervising"]
