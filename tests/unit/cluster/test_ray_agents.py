"""The error for a caller that needs a cluster's agents while its head is away."""

from __future__ import annotations

from typing import Any

import pytest

from cenote.gateway.machines import ray_nodes
from cenote.gateway.machines.ray_nodes import RayAgents
from cenote_security.errors import UnavailableError


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (RuntimeError("Failed to connect"), UnavailableError),
        (ConnectionError("it is away"), UnavailableError),
        (ValueError("no such actor"), ValueError),
    ],
)
def test_a_cluster_whose_head_is_away(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, told: type[Exception]
) -> None:
    """The error says that it does not answer, whatever Ray calls that; the lookup of a starting actor is repeated."""

    def away(*_given: object, **_more: object) -> Any:
        raise raised

    monkeypatch.setattr(ray_nodes, "machines", away)
    with pytest.raises(told, match=str(raised)):
        RayAgents(None)()  # type: ignore[arg-type]
