"""What whoever asks for the agents of a cluster is told while its head is away."""

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
    """That it does not answer, whatever Ray calls that; an actor that is about to be there is looked for again."""

    def away(*_given: object, **_more: object) -> Any:
        raise raised

    monkeypatch.setattr(ray_nodes, "ensure_agents", away)
    with pytest.raises(told, match=str(raised)):
        RayAgents(None)()  # type: ignore[arg-type]
