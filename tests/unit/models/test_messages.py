"""Messages are checked once, where they are made."""

from __future__ import annotations

import pytest

from cenote.models.messages import Message
from cenote_security.errors import UsageError


def test_helpers_name_the_role() -> None:
    """Each role has its own constructor."""
    assert Message("system", "s") == Message.system("s")
    assert Message("user", "u") == Message.user("u")
    assert Message("assistant", "a") == Message.assistant("a")


@pytest.mark.parametrize(
    ("role", "content"), [("tool", "x"), ("User", "x"), ("", "x"), ("user", None), ("user", b"x")]
)
def test_other_roles_and_contents_are_refused(role: str, content: object) -> None:
    """Roles are the three of a plain chat, and content is text."""
    with pytest.raises(UsageError):
        Message(role, content)  # type: ignore[arg-type]
