"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.walls.fixtures import jail, landlock, level, start_jail, strict, strict_jail

__all__ = ["jail", "landlock", "level", "start_jail", "strict", "strict_jail"]
