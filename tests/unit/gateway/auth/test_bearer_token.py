"""Tokens as text: their form, what their checksum detects, what is stored of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_security.auth.tokens import ORDINARY_SCOPES, TOKEN_PATTERN, BearerToken, Scope, parse_scopes
from cenote_security.errors import UsageError
from cenote_security.ids import TokenId, new_runtime_id, new_tenant_id, new_token_id

TOKEN = BearerToken.of(TokenId("0123456789abcdef" * 2), bytes(range(32)))
secrets = st.binary(min_size=32, max_size=32)


def test_the_form_of_a_token_is_fixed() -> None:
    """Issued tokens must stay valid: form, checksum and digest are part of the contract."""
    assert (
        "cenote_0123456789abcdef0123456789abcdef_000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        "_854cc885" == TOKEN.text
    )
    assert "15b8aba3" == TOKEN.digest()[:8]


@settings(deadline=None)
@given(secrets)
def test_a_token_is_read_back(secret: bytes) -> None:
    """A generated token is well-formed, and a secret scanner finds it in a line of text."""
    token = BearerToken.of(new_token_id(), secret)
    assert token == BearerToken.parse(token.text)
    assert [token.text] == re.findall(TOKEN_PATTERN, f"export CENOTE_TOKEN={token.text} # mine")


@settings(deadline=None)
@given(st.integers(0, len(TOKEN.text) - 1), st.characters())
def test_one_wrong_character_is_noticed(place: int, character: str) -> None:
    """A mistyped token is told apart from a wrong one without a lookup."""
    changed = TOKEN.text[:place] + character + TOKEN.text[place + 1 :]
    assert (TOKEN if character == TOKEN.text[place] else None) == BearerToken.parse(changed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cenote_",
        TOKEN.text[:-1],
        TOKEN.text + "0",
        TOKEN.text + "\n",
        " " + TOKEN.text,
        TOKEN.text.upper(),
    ],
)
def test_parts_and_variants_are_no_tokens(text: str) -> None:
    """There is one valid spelling."""
    assert BearerToken.parse(text) is None


def test_a_token_does_not_show_its_secret() -> None:
    """A token in a log line or a traceback is the usual leak."""
    assert "BearerToken(id='0123456789abcdef0123456789abcdef')" == repr(TOKEN)


@settings(deadline=None)
@given(secrets, secrets)
def test_digests_tell_tokens_apart(one: bytes, other: bytes) -> None:
    """Equal digests mean equal secrets."""
    digests = [BearerToken.of(TOKEN.id, secret).digest() for secret in (one, other)]
    assert (one == other) == (digests[0] == digests[1])


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_short_secret_is_refused(size: int) -> None:
    """One round of a fast hash is enough only because a secret has 256 bits."""
    with pytest.raises(UsageError, match="32 bytes"):
        BearerToken.of(TOKEN.id, bytes(size))


def test_ids_are_not_guessed() -> None:
    """128 bits each; none is issued twice, and each says what kind of object it names."""
    ids = [make() for make in (new_tenant_id, new_runtime_id) for _ in range(50)]
    assert 100 == len(set(ids))
    assert {"tn", "rt"} == {text.split("_")[0] for text in ids}
    assert {32} == {len(text.split("_")[1]) for text in ids}


def test_scopes_are_a_closed_list() -> None:
    """An unknown scope is refused, as is a token without scopes."""
    assert frozenset({Scope.TEAMS, Scope.ADMIN}) == parse_scopes(["admin", "teams", "admin"])
    assert Scope.ADMIN not in ORDINARY_SCOPES
    with pytest.raises(UsageError, match="unknown scope 'root'"):
        parse_scopes(["teams", "root"])
    with pytest.raises(UsageError, match="at least one"):
        parse_scopes([])
