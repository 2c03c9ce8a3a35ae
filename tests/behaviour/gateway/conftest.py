"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.gateway.fixtures import acme, clock, either, make_world, rival, tenants, world

__all__ = ["acme", "clock", "either", "make_world", "rival", "tenants", "world"]
