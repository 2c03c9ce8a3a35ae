"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.environments.fixtures import kept, of, place, wheels

__all__ = ["kept", "of", "place", "wheels"]
