"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.limits.fixtures import mode, site, start_runtime

__all__ = ["mode", "site", "start_runtime"]
