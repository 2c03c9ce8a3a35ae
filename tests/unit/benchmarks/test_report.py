"""Formatting of figures."""

from __future__ import annotations

import pytest
from benchmarks.runtime.measure import Unit
from benchmarks.runtime.report import format_ratio, format_value


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1.62 s", 1.6234, Unit.SECONDS),
        ("4.1 ms", 0.0041, Unit.SECONDS),
        ("999 µs", 0.000999, Unit.SECONDS),
        ("0.5 µs", 5e-7, Unit.SECONDS),
        ("0 µs", 0.0, Unit.SECONDS),
        ("2.31 MB", 2_312_000, Unit.BYTES),
        ("12.5 GB", 12.5e9, Unit.BYTES),
        ("-4 kB", -4000, Unit.BYTES),
        ("200", 200.0, Unit.COUNT),
    ],
)
def test_a_value_has_three_digits_and_a_readable_unit(text: str, value: float, unit: Unit) -> None:
    """Three significant digits, in the unit that keeps the number between 1 and 1000."""
    assert text == format_value(value, unit)


def test_ratios_say_no_more_than_is_known() -> None:
    """At most three digits, no decimals for hundreds, and nothing below a hundredth."""
    assert ["1.27x", "15x", "381x", "0.01x", "<0.01x"] == [
        format_ratio(r) for r in (1.27, 15.0, 380.6, 0.01, 0.0099)
    ]
