"""The public interface changes only on purpose: `python -m tests.house.formats.public_face` writes it."""

from __future__ import annotations

import sys

import pytest
from tests.house.formats.public_face import FACES, HERE


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other Pythons write signatures otherwise")
@pytest.mark.parametrize("file", ["signatures.txt", "command_line.txt"])
def test_the_public_face_is_as_written(file: str) -> None:
    assert (HERE / file).read_text().splitlines() == list(FACES[file]())


def test_no_field_of_a_message_goes_or_changes() -> None:
    """A field may be added; a client of another version still sends removed or renumbered ones."""
    assert set() == set((HERE / "protos.txt").read_text().splitlines()) - set(FACES["protos.txt"]())


def test_each_field_of_a_message_is_written_down() -> None:
    """So that the test above covers it from then on."""
    assert set() == set(FACES["protos.txt"]()) - set((HERE / "protos.txt").read_text().splitlines())
