"""Errors when a Ray cluster does not accept a connection."""

from __future__ import annotations

import pytest
import ray
from ray.exceptions import AuthenticationError

from cenote_worker.node.ray import cluster


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
    """For a cluster that requires a token, Ray only says that it cannot be connected to."""

    def refuse(**_: object) -> None:
        raise error

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(ConnectionError, match=rf"\Ano{hint}"):
        cluster.join("127.0.0.1:1", "platform")


FAILED = ConnectionAbortedError(
    "Initialization failure from server:\nTraceback (most recent call last):\n  File ...\n"
    "RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err for detailed logs.\n"
)


def test_a_server_that_fails_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a traceback the last line. The connection is retried first, a fixed number of times."""
    tries = []

    def refuse(**_: object) -> None:
        tries.append(1)
        raise FAILED

    monkeypatch.setattr(ray, "init", refuse)
    said = r"\AInitialization failure from server: RuntimeError: Starting Ray client server failed\. See .*logs\.\Z"
    with pytest.raises(ConnectionError, match=said):
        cluster.join("ray://127.0.0.1:1", "platform")
    assert len(tries) == cluster.CLIENT_TRIES


def test_a_server_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server starts a process for each driver, which may end at once."""
    outcomes = [FAILED, FAILED, None]

    def begin(**_: object) -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    monkeypatch.setattr(ray, "init", begin)
    cluster.join("ray://127.0.0.1:1", "platform")
    assert [] == outcomes
