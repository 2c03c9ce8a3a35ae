"""Full outputs, stored for model-written code to read."""

from __future__ import annotations

import pytest

from cenote.agent.act.namespace_functions import KeptOutputs


def test_the_first_text_of_a_cell_stays() -> None:
    """A later text is a shortened form of the first."""
    kept = KeptOutputs()
    kept.keep(1, "whole")
    kept.keep(1, "short")
    assert "whole" == kept.read_output(1)


@pytest.mark.parametrize("number", [2, "1", None, [1]])
def test_what_is_not_there_is_an_error_that_says_what_is(number: object) -> None:
    """The message is for a model."""
    kept = KeptOutputs()
    kept.keep(1, "x")
    with pytest.raises(LookupError, match="there are 1"):
        kept.read_output(number)


def test_the_oldest_go_beyond_the_limit() -> None:
    """At the limit all stay; one character more removes the oldest. The last one always stays."""
    kept = KeptOutputs(limit=10)
    kept.keep(1, "x" * 5)
    kept.keep(2, "y" * 5)
    assert "xxxxx" == kept.read_output(1)
    kept.keep(3, "z")
    with pytest.raises(LookupError, match="there are 2, 3"):
        kept.read_output(1)
    kept.keep(4, "w" * 50)
    assert "w" * 50 == kept.read_output(4)
