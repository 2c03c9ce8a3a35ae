"""Fixtures of these tests, shared with other kinds of the same subject."""

from tests.support.checkpoints.fixtures import end_zygotes, folder, leave_zygotes, make_runtime

__all__ = ["end_zygotes", "folder", "leave_zygotes", "make_runtime"]
