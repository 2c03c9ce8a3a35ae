"""The data set that ships with Cenote: field notes on penguins, as raw as they were published."""

from __future__ import annotations

from importlib import resources

TITLE = "Palmer penguins, raw field notes (344 birds, CC0)"


def read_csv_bytes() -> bytes:
    """The CSV file, as it was published."""
    return resources.files("cenote.demo").joinpath("data", "penguins-raw.csv").read_bytes()
