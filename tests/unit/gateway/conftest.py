"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.gateway.fixtures import clock, tenants

__all__ = ["clock", "tenants"]
