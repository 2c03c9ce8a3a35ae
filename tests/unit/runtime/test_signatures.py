"""Signatures from text: shown like the original, never evaluated."""

from __future__ import annotations

import inspect

import pytest

from cenote.runtime.inject.injection import signature_text
from cenote_worker.jail.rendering.signatures import parse_signature


@pytest.mark.parametrize(
    "text",
    [
        "()",
        "(a, /, b: int = 1, *args: str, c: dict[str, int] = {}, **more) -> list[Item]",
        "(self, x=-1.5)",
        "(*, flag=True)",
    ],
)
def test_it_prints_as_it_was(text: str) -> None:
    """Defaults and annotations are shown as written."""
    signature = parse_signature(text)
    assert signature is not None
    assert text.replace(" ", "") == str(signature).replace(" ", "").replace("'", "")


@pytest.mark.parametrize("text", ["", "(", "(a): pass\nimport os\ndef g()", "(a=1, b)", "(" * 500])
def test_anything_else_is_none(text: str) -> None:
    """Text that is not a signature gives none, and no error."""
    assert parse_signature(text) is None


def test_binding_works() -> None:
    """The rebuilt signature can be bound, as error hints do."""
    signature = parse_signature(signature_text(lambda a, b=2: None))
    assert signature is not None
    assert {"a": 1} == signature.bind(1).arguments
    assert inspect.Parameter.empty is not signature.parameters["b"].default
