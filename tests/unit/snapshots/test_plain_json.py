"""A JSON codec that is unaffected when a program changes the standard library's."""

from __future__ import annotations

import json
import math

import pytest

from cenote_worker.jail import plain_json

PLAIN = [
    {}, [], "", "ä\u2028\n\"\\", 0, -(2**70), 1.5, 1e300, True, None, [1, [2, {"a": None}]],
    {"b": [False, 0.1]}, {1: 2, None: 3},
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_it_is_the_same_as_that_of_the_standard_library(value: object, ascii_only: bool) -> None:
    """Encoding and decoding."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert text == plain_json.dumps(value, ascii_only=ascii_only)
    assert json.loads(text) == plain_json.loads(text) == plain_json.loads(f" {text}\n".encode())


def test_what_is_no_number_is_the_same_too() -> None:
    """Infinities and NaNs."""
    assert "[NaN, Infinity, -Infinity]" == plain_json.dumps([math.nan, math.inf, -math.inf])
    assert math.inf == plain_json.loads("Infinity")
    assert math.isnan(plain_json.loads("NaN"))


@pytest.mark.parametrize(
    "text", ["", " ", "1 2", "[1,]", "{", '{"a" 1}', "nan", "[" * 200_000, b"\xff"], ids=repr
)
def test_whatever_else_is_refused(text: str | bytes) -> None:
    """Any code in the jail may have written the text."""
    with pytest.raises((ValueError, RecursionError)):
        plain_json.loads(text)


def test_values_that_are_no_json_are_refused() -> None:
    """As by the standard library."""
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(TypeError, match="set"):
        plain_json.dumps({1})
    with pytest.raises(ValueError, match="Circular"):
        plain_json.dumps(ring)


def test_it_asks_nothing_of_the_changed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses no function and no class of the module, and nothing that these use."""
    monkeypatch.setattr(json.JSONEncoder, "default", None)
    monkeypatch.setattr(json.JSONEncoder, "iterencode", None)
    monkeypatch.setattr(json.JSONDecoder, "decode", None)
    for home in (json, json.encoder, json.decoder, json.scanner):
        for key in [key for key in vars(home) if not key.startswith("__")]:
            monkeypatch.setattr(home, key, None)
    text = plain_json.dumps({"a": [1.5, "ä"]})
    found = plain_json.loads(text)
    monkeypatch.undo()
    assert ('{"a": [1.5, "\\u00e4"]}', {"a": [1.5, "ä"]}) == (text, found)
