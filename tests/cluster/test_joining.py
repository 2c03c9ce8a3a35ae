"""What is said where a Ray cluster lets nobody in."""

from __future__ import annotations

import pytest
import ray
from ray.exceptions import AuthenticationError

from cenote_worker.cluster import ray_cluster


@pytest.mark.parametrize("error", [ConnectionError("no\nmore"), AuthenticationError("no\nmore")], ids=type)
@pytest.mark.parametrize(
    ("mode", "hint"),
    [
        ("", "; where it asks for a token, set RAY_AUTH_MODE=token"),
        ("token", " with the token that RAY_AUTH_MODE"),
    ],
)
def test_a_token_may_be_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, mode: str, hint: str
) -> None:
    """Ray says of a cluster that asks for a token only that it cannot be connected to."""

    def refuse(**_: object) -> None:
        raise error

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(ConnectionError, match=rf"\Ano{hint}"):
        ray_cluster.join("127.0.0.1:1", "platform")
