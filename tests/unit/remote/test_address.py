"""Which platform is used: arguments before environment before files, and no guesses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenote.runtime.remote.address import Destination, destination, token_file
from cenote_security.errors import CenoteError, SecretFileError, UsageError


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CENOTE_ADDRESS", "CENOTE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def save_token(text: str, mode: int = 0o600) -> Path:
    path = token_file()
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("given_address", "meant"),
    [
        ("localhost:1", "localhost:1"),
        ("example.org", "example.org:8470"),
        ("10.0.0.1:65535", "10.0.0.1:65535"),
        ("[::1]:80", "[::1]:80"),
        ("[::1]", "[::1]:8470"),
    ],
)
def test_addresses(given_address: str, meant: str) -> None:
    """A host and a port; without one, the default."""
    assert Destination(meant, "t") == destination(given_address, "t")


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        ":",
        ":80",
        "host:",
        "host:0",
        "host:65536",
        "host:port",
        "host:٣",
        "::1",
        "1:2:3",
        "http://host:80",
        "a b:1",
    ],
)
def test_what_is_no_address(wrong: str) -> None:
    """It is refused with an example, and never taken for this machine."""
    with pytest.raises(UsageError, match="host:port"):
        destination(wrong, "t")


@given(st.text(max_size=30))
def test_any_text(text: str) -> None:
    """It is an address that stays the same when it is read again, or is refused; `embedded` is this machine."""
    try:
        target = destination(text, "t")
    except CenoteError:
        return
    assert target == (None if target is None else destination(target.address, "t"))
    assert (text == "embedded") == (target is None)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves a script to a platform, and back; arguments take precedence."""
    assert destination(None) is None
    monkeypatch.setenv("CENOTE_ADDRESS", "")
    assert destination(None) is None
    monkeypatch.setenv("CENOTE_ADDRESS", "platform:1")
    monkeypatch.setenv("CENOTE_TOKEN", "from-environment")
    assert Destination("platform:1", "from-environment") == destination(None)
    assert Destination("other:2", "given") == destination("other:2", "given")
    assert destination("embedded") is None


def test_the_token_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Used when no other source gives a token; it need not exist."""
    assert Destination("a:1", "") == destination("a:1")
    save_token("from-file\n")
    assert Destination("a:1", "from-file") == destination("a:1")
    monkeypatch.setenv("CENOTE_TOKEN", "from-environment")
    assert Destination("a:1", "from-environment") == destination("a:1")


def test_a_token_that_was_read_with_its_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a file, or from a secret in the environment."""
    monkeypatch.setenv("CENOTE_TOKEN", " from-environment\r\n")
    assert Destination("a:1", "from-environment") == destination("a:1")


@pytest.mark.parametrize("wrong", ["t\u00f6ken", "one\ntwo", "nul\0"])
def test_what_is_no_token(wrong: str) -> None:
    """It could not be sent; the error does not show it."""
    with pytest.raises(UsageError, match="no token has; check CENOTE_TOKEN") as refused:
        destination("a:1", wrong)
    assert wrong not in str(refused.value)


def test_a_token_file_that_others_can_read() -> None:
    """It is refused, with what to do about it."""
    save_token("known-to-all", 0o644)
    with pytest.raises(SecretFileError, match="chmod 600"):
        destination("a:1")


def test_tokens_are_not_shown() -> None:
    """A destination ends up in error reports."""
    assert "secret" not in repr(destination("a:1", "secret"))
