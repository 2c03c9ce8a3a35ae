"""Capabilities: checked offline, for one runtime, for a short time."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_security.auth.capability import (
    MAX_LIFETIME,
    Capability,
    CapabilityRight,
    MasterKey,
    claimed_runtime,
    verify_any,
)
from cenote_security.errors import NotAuthenticatedError, UsageError
from cenote_security.ids import RuntimeId, TenantId, TokenId

NOW = 1_750_000_000
MASTER = MasterKey(secret=bytes(32))
RUNTIME = RuntimeId("rt_one")
KEY = MASTER.for_runtime(RUNTIME)
CAPABILITY = Capability(
    tenant=TenantId("tn_acme"),
    runtime=RUNTIME,
    holder=TokenId("0" * 32),
    rights=frozenset({CapabilityRight.RUN, CapabilityRight.READ}),
    issued=NOW,
    expires=NOW + 300,
)
TEXT = KEY.sign(CAPABILITY)


def test_an_actor_reads_what_the_gateway_signed() -> None:
    """With the runtime's key alone: no database and no remote call."""
    assert CAPABILITY == KEY.verify(TEXT, now=NOW)


@pytest.mark.parametrize(("late", "good"), [(299.9, True), (300, False), (10**9, False)])
def test_it_ends_when_it_says(late: float, good: bool) -> None:
    """At its last moment it is valid, a moment later it is not."""
    if good:
        assert CAPABILITY == KEY.verify(TEXT, now=NOW + late)
        return
    with pytest.raises(NotAuthenticatedError, match="has expired"):
        KEY.verify(TEXT, now=NOW + late)


@pytest.mark.parametrize(("early", "good"), [(MAX_LIFETIME, True), (MAX_LIFETIME + 1, False), (10**8, False)])
def test_a_clock_that_is_set_back_prolongs_it_by_little(early: int, good: bool) -> None:
    """Clocks of machines differ by seconds; one that is far behind would accept what was revoked long ago."""
    if good:
        assert CAPABILITY == KEY.verify(TEXT, now=NOW - early)
        return
    with pytest.raises(NotAuthenticatedError, match="set the clocks alike"):
        KEY.verify(TEXT, now=NOW - early)


@settings(deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_each_character_counts(place: int, character: str) -> None:
    """Any change, in the claims or in the signature, makes the capability invalid."""
    changed = TEXT[:place] + character + TEXT[place + 1 :]
    if changed == TEXT:
        return
    with pytest.raises(NotAuthenticatedError, match="not one for this runtime"):
        KEY.verify(changed, now=NOW)


@pytest.mark.parametrize(
    "text", ["", ".", "...", TEXT + "." + TEXT, TEXT[:-64], "x" * 10**6, "\ud800." + TEXT, TEXT + "\ud800"]
)
def test_what_is_no_capability(text: str) -> None:
    """Any input may arrive: too short, too long, not even text."""
    with pytest.raises(NotAuthenticatedError, match="not one for this runtime"):
        KEY.verify(text, now=NOW)


def test_an_actor_cannot_sign_for_another_runtime() -> None:
    """An attacker who takes over an actor has the key of that one runtime only."""
    other = MASTER.for_runtime(RuntimeId("rt_two"))
    assert KEY.secret != other.secret
    with pytest.raises(NotAuthenticatedError):
        other.verify(TEXT, now=NOW)
    with pytest.raises(UsageError, match="another runtime"):
        KEY.sign(replace(CAPABILITY, runtime=RuntimeId("rt_two")))


def test_claims_for_another_runtime_under_the_right_key() -> None:
    """A runtime's key vouches for that runtime only, even where another party did the signing."""
    wrong = replace(KEY, runtime=RuntimeId("rt_two")).sign(replace(CAPABILITY, runtime=RuntimeId("rt_two")))
    with pytest.raises(NotAuthenticatedError, match="not one for this runtime"):
        KEY.verify(wrong, now=NOW)


def test_while_the_master_key_changes_both_are_good() -> None:
    """The capability names its key; one that names an unknown key is refused."""
    new = MasterKey(secret=b"n" * 32).for_runtime(RUNTIME)
    assert CAPABILITY == verify_any([new, KEY], TEXT, now=NOW)
    assert CAPABILITY == verify_any([new, KEY], new.sign(CAPABILITY), now=NOW)
    for text in (TEXT, "", "no dots at all"):
        with pytest.raises(NotAuthenticatedError):
            verify_any([new], text, now=NOW)


@settings(deadline=None)
@given(st.text() | st.builds("{}.{}.{}.{}".format, *[st.text(max_size=20)] * 4))
def test_anything_may_claim_to_be_for_a_runtime(text: str) -> None:
    """The claim selects a key; other input claims nothing, and raises no error."""
    assert RUNTIME == claimed_runtime(TEXT)
    assert "" == claimed_runtime(text)


def test_a_claim_that_would_exhaust_the_stack() -> None:
    """Untrusted input is never decoded without a bound."""
    nested = base64.urlsafe_b64encode(b"[" * 700).decode()
    assert "" == claimed_runtime(f"cenotecap.00.{nested}.00")
    assert "" == claimed_runtime(f"cenotecap.00.{'W1' * 100_000}.00")


@pytest.mark.parametrize("lifetime", [0, -1, MAX_LIFETIME + 1])
def test_none_lives_for_long(lifetime: int) -> None:
    """A capability cannot be revoked, so none is issued with a long lifetime."""
    with pytest.raises(UsageError, match=f"from 1 to {MAX_LIFETIME} s"):
        replace(CAPABILITY, expires=NOW + lifetime)
    assert NOW + MAX_LIFETIME == replace(CAPABILITY, expires=NOW + MAX_LIFETIME).expires


def test_one_without_rights_is_none() -> None:
    """A capability without rights would be an error of its issuer."""
    with pytest.raises(UsageError, match="at least one right"):
        replace(CAPABILITY, rights=frozenset())


def test_keys_are_not_shown() -> None:
    """Neither the derived key nor the master key."""
    assert "secret" not in repr(KEY) + repr(MASTER)
    with pytest.raises(UsageError, match="32 bytes"):
        MasterKey(secret=b"short")


@pytest.mark.parametrize("issued", ["Infinity", "1e999", "NaN", "[]", "null", "9" * 500])
def test_whatever_a_stranger_claims_is_read_without_harm(issued: str) -> None:
    """The runtime has to be known before the signature can be checked."""
    claims = f'{{"tenant":"t","runtime":"r","holder":"h","rights":["run"],"issued":{issued},"expires":1}}'
    forged = f"cenotecap.{KEY.id}.{base64.urlsafe_b64encode(claims.encode()).decode()}.{'0' * 64}"
    assert claimed_runtime(forged) == ""
