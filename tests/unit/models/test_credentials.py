"""Secrets stay secret: not in reprs, not in shown texts, not in a jail."""

from __future__ import annotations

import copy
import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.models import LiteLLMModel, OpenAIServerModel
from cenote.models.errors import MASK, Credentials, clean_key
from cenote_security.errors import NotTransferableError, UsageError

KEY = "sk-very-secret-0123456789"


@given(before=st.text(max_size=50), after=st.text(max_size=50))
@settings(deadline=None)
def test_every_occurrence_is_cut_out(before: str, after: str) -> None:
    """In any context, the key is removed."""
    assert KEY not in Credentials(KEY).redact(f"{before}{KEY}{after}{KEY}")


def test_nested_secrets_are_found() -> None:
    """Headers and lists of keys hold secrets in their values."""
    credentials = Credentials(
        None, {"extra_headers": {"x-team": "team-secret-1"}, "keys": ["other-secret-2"]}
    )
    assert f"{MASK} and {MASK}" == credentials.redact("team-secret-1 and other-secret-2")


def test_a_longer_secret_goes_before_its_prefix() -> None:
    """Removing the shorter one first would leave the rest of the longer one."""
    secrets = [KEY, f"{KEY}-and-more"]
    random.shuffle(secrets)
    assert MASK == Credentials(None, {"keys": secrets}).redact(f"{KEY}-and-more")


def test_placeholders_are_left_alone() -> None:
    """Servers without keys get keys such as "x": no text may lose its x's."""
    assert "a box of EMPTY boxes" == Credentials("x", {"key": "EMPTY"}).redact("a box of EMPTY boxes")


def test_a_key_read_from_a_file_loses_its_line_break() -> None:
    """No header can carry a line break, and it is never part of a key."""
    assert KEY == clean_key(f" {KEY}\n")


@pytest.mark.parametrize("key", ["sk-…", "sk-a\nb", "sk-\u200b1", "ключ"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    """The error doesn't repeat the key."""
    with pytest.raises(UsageError) as caught:
        clean_key(key)
    assert key not in str(caught.value)


MODELS = [
    OpenAIServerModel("m", api_key=KEY, base_url="http://user:password-1@localhost:1/v1", headers={"a": KEY}),
    LiteLLMModel("m", api_key=KEY, custom_llm_provider="openai", aws_secret_access_key=KEY, temperature=0.5),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_reprs_show_no_secret(model: OpenAIServerModel | LiteLLMModel) -> None:
    """Neither the model's repr nor that of anything it holds shows one, including a password in a URL."""
    assert KEY not in repr(model)
    assert KEY not in repr(vars(model))
    assert "password-1" not in repr(model)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_models_with_keys_do_not_travel(model: OpenAIServerModel | LiteLLMModel) -> None:
    """A pickled model would carry its key into a jail."""
    with pytest.raises(NotTransferableError, match="credentials"):
        pickle.dumps(model)
    with pytest.raises(NotTransferableError):
        copy.deepcopy(model)
