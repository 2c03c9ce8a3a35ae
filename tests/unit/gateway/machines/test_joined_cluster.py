"""When the connection to a cluster counts as lost, for a gateway that is not one of its machines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cenote.gateway.machines.joined_cluster import is_client_address, lost_client


class Line:
    """Polls one second apart, with what each one finds."""

    def __init__(self, finds: str) -> None:
        """finds: a letter for each poll, `y` for an answer; after the last one the platform ends."""
        self.finds = finds
        self.now = 0.0

    def wait(self, _seconds: float) -> bool:
        self.now += 1.0
        return self.is_set()

    def is_set(self) -> bool:
        return self.now > len(self.finds)

    def look(self) -> None:
        if self.finds[int(self.now) - 1] != "y":
            raise ConnectionError("the data client has disconnected")


@pytest.mark.parametrize(
    ("finds", "lost"),
    [
        ("yyyy", False),
        ("ynnn", False),
        ("ynnnn", True),
        ("nnnynnny", False),
        ("nnnynnnn", True),
    ],
)
def test_a_line_is_lost_after_a_while_without_any_answer(finds: str, lost: bool) -> None:
    """At the limit, and not one poll earlier; an answer restarts the count, and the platform's end does not count."""
    line = Line(finds)
    clock: Callable[[], float] = lambda: line.now  # noqa: E731
    assert lost == lost_client(line.look, line, patience=3.0, clock=clock)  # type: ignore[arg-type]


def test_addresses_of_client_servers() -> None:
    """By their scheme."""
    assert is_client_address("ray://head:10001")
    assert not is_client_address("head:6379")
