"""Tokens: issued, checked, rotated, revoked."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import DEFAULT_GRACE, Tenant, Tenants, Tokens
from cenote_security.auth.tokens import ORDINARY_SCOPES, BearerToken, Scope
from cenote_security.errors import NotAuthenticatedError, ScopeMissingError, UnknownEntryError, UsageError
from cenote_security.ids import TokenId, new_token_id


class Clock(Protocol):
    def __call__(self) -> float: ...
    def pass_by(self, seconds: float) -> None: ...


@pytest.fixture
def tokens(database: Database, clock: Clock) -> Tokens:
    return Tokens(database, clock)


def refusal(tokens: Tokens, text: str) -> str:
    with pytest.raises(NotAuthenticatedError) as caught:
        tokens.authenticate(text)
    return caught.value.reason


def test_a_token_says_who_holds_it(tokens: Tokens, acme: Tenant) -> None:
    """Its tenant and its scopes, from the text alone."""
    token = tokens.issue(acme.id, ["teams", "runtimes:read"], note="the nightly job")
    principal = tokens.authenticate(token.text)
    assert (acme.id, "acme", token.id) == (principal.tenant, principal.tenant_name, principal.token)
    assert frozenset({Scope.TEAMS, Scope.RUNTIMES_READ}) == principal.scopes
    assert ORDINARY_SCOPES == tokens.authenticate(tokens.issue(acme.id).text).scopes


def test_a_scope_implies_no_other(tokens: Tokens, acme: Tenant) -> None:
    """Writing does not imply reading; the error lists the token's scopes."""
    principal = tokens.authenticate(tokens.issue(acme.id, ["runtimes:write", "admin"]).text)
    principal.require(Scope.RUNTIMES_WRITE)
    with pytest.raises(ScopeMissingError, match="no scope 'runtimes:read', only admin, runtimes:write"):
        principal.require(Scope.RUNTIMES_READ)


@pytest.mark.databases("sqlite")
def test_the_database_holds_no_token(tokens: Tokens, db: Path, acme: Tenant) -> None:
    """A copy of the database gives no access: the secret is in none of its files."""
    token = tokens.issue(acme.id)
    secret = token.text.split("_")[2].encode()
    files = [  # not in this process: closing them here would release its locks
        subprocess.run(["cat", str(path)], stdout=subprocess.PIPE, check=True).stdout
        for path in db.parent.iterdir()
    ]
    assert any(token.id.encode() in content for content in files)
    assert not any(secret in content or secret[:16] in content for content in files)


def test_strangers_learn_nothing(tokens: Tokens, acme: Tenant) -> None:
    """No token, half a token, an unknown one and a known one with a wrong secret are refused with the same text."""
    token = tokens.issue(acme.id)
    texts = [
        "",
        "Bearer",
        token.text[:-1],
        "x" * 10**6,
        "\ud800",
        BearerToken.of(new_token_id(), bytes(32)).text,
        BearerToken.of(token.id, bytes(32)).text,
        BearerToken.of(TokenId("0" * 32), bytes(32)).text,
    ]
    assert 1 == len({refusal(tokens, text) for text in texts})


def test_a_token_ends_when_it_says(tokens: Tokens, acme: Tenant, clock: Clock) -> None:
    """Only the token's holder learns that it has expired."""
    token = tokens.issue(acme.id, lifetime=60)
    clock.pass_by(59.9)
    tokens.authenticate(token.text)
    clock.pass_by(0.1)
    assert "has expired" in refusal(tokens, token.text)
    assert "expired" not in refusal(tokens, BearerToken.of(token.id, bytes(32)).text)


def test_a_revoked_token_is_refused_at_once(tokens: Tokens, acme: Tenant, db: Path | str) -> None:
    """Also by a process that has verified it before."""
    token = tokens.issue(acme.id)
    with Database(db) as other:
        Tokens(other).revoke(acme.id, token.id)
    assert "was revoked" in refusal(tokens, token.text)
    tokens.revoke(acme.id, token.id)


def test_the_tokens_of_a_closed_tenant_are_refused(tokens: Tokens, tenants: Tenants, acme: Tenant) -> None:
    """All of them, and new ones too."""
    token = tokens.issue(acme.id)
    tenants.close("acme")
    for text in (token.text, tokens.issue(acme.id).text):
        assert "tenant was closed" in refusal(tokens, text)


def test_a_rotated_token_works_through_its_grace(tokens: Tokens, acme: Tenant, clock: Clock) -> None:
    """The grace period is for replacing the token where it is used; then the old one is invalid."""
    old = tokens.issue(acme.id, ["admin"], note="console")
    new = tokens.rotate(acme.id, old.id)
    assert tokens.authenticate(old.text).scopes == tokens.authenticate(new.text).scopes
    clock.pass_by(DEFAULT_GRACE)
    assert "has expired" in refusal(tokens, old.text)
    tokens.authenticate(new.text)
    kept = {record.id: record for record in tokens.of(acme.id)}
    assert (new.id, "console", None) == (kept[old.id].successor, kept[new.id].note, kept[new.id].expires)


def test_a_rotation_prolongs_nothing_but_itself(tokens: Tokens, acme: Tenant, clock: Clock) -> None:
    """The old token keeps its own end if that is sooner; the new one's lifetime equals the old one's."""
    old = tokens.issue(acme.id, lifetime=100)
    clock.pass_by(90)
    new = tokens.rotate(acme.id, old.id, grace=1000)
    clock.pass_by(10)
    assert "has expired" in refusal(tokens, old.text)
    clock.pass_by(89)
    tokens.authenticate(new.text)
    clock.pass_by(1)
    assert "has expired" in refusal(tokens, new.text)


def expire(tokens: Tokens, clock: Clock, tenant: Tenant, token: BearerToken) -> None:
    clock.pass_by(60)


def revoke(tokens: Tokens, clock: Clock, tenant: Tenant, token: BearerToken) -> None:
    tokens.revoke(tenant.id, token.id)


def rotate(tokens: Tokens, clock: Clock, tenant: Tenant, token: BearerToken) -> None:
    tokens.rotate(tenant.id, token.id)


@pytest.mark.parametrize("end", [expire, revoke, rotate])
def test_only_a_good_token_is_rotated(
    tokens: Tokens, acme: Tenant, clock: Clock, end: Callable[[Tokens, Clock, Tenant, BearerToken], None]
) -> None:
    """A leaked and revoked token must not become valid again by rotation."""
    token = tokens.issue(acme.id, lifetime=60)
    end(tokens, clock, acme, token)
    count = len(tokens.of(acme.id))
    with pytest.raises(UnknownEntryError, match="no good token"):
        tokens.rotate(acme.id, token.id)
    assert count == len(tokens.of(acme.id))


def test_tokens_of_others_are_not_there(tokens: Tokens, acme: Tenant, rival: Tenant) -> None:
    """An administrator of one tenant can't list, revoke or rotate the tokens of another, nor see that they exist."""
    token = tokens.issue(acme.id)
    assert [] == tokens.of(rival.id)
    for act in (tokens.revoke, tokens.rotate):
        errors = set()
        for name in (token.id, new_token_id()):
            with pytest.raises(UnknownEntryError) as caught:
                act(rival.id, name)
            errors.add(str(caught.value).replace(name, "..."))
        assert 1 == len(errors)
    tokens.authenticate(token.text)


@pytest.mark.parametrize(
    "wrong",
    [{"scopes": ["root"]}, {"scopes": []}, {"lifetime": 0}, {"lifetime": float("nan")}, {"note": "x" * 201}],
)
def test_what_is_no_token(tokens: Tokens, acme: Tenant, wrong: dict[str, object]) -> None:
    """It is refused before anything is stored."""
    with pytest.raises(UsageError):
        tokens.issue(acme.id, **wrong)  # type: ignore[arg-type]
    assert [] == tokens.of(acme.id)


def test_no_grace_is_a_grace(tokens: Tokens, acme: Tenant) -> None:
    """The old token ends with the rotation; a negative grace is an error."""
    old = tokens.issue(acme.id)
    with pytest.raises(UsageError, match="from 0 on"):
        tokens.rotate(acme.id, old.id, grace=-1)
    tokens.rotate(acme.id, old.id, grace=0)
    assert "has expired" in refusal(tokens, old.text)
