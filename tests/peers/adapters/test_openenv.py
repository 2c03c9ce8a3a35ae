"""A task in a runtime as an environment of OpenEnv, in this process and behind its server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cenote import PythonRuntime, SandboxPolicy, Variable
from cenote.rl import Environment, FinalState

pytest.importorskip("openenv", reason="needs openenv: `make test-peers` has it")

from starlette.testclient import TestClient

from cenote.adapters.openenv import CenoteEnvironment, TextAction, environment_app
from cenote_security.errors import UsageError

ROWS = [1, 2, 3]


def make() -> Environment:
    def runtime() -> PythonRuntime:
        policy = SandboxPolicy(memory="512MiB", cell_timeout=5)
        return PythonRuntime(variables=[Variable("rows", ROWS)], sandbox=policy)

    def score(final: FinalState) -> float:
        return float(final.retrieve("total") == sum(ROWS))

    return Environment("Sum up `rows` in `total`.", runtime, score, max_steps=3)


@pytest.fixture
def session() -> Iterator[CenoteEnvironment]:
    session = CenoteEnvironment(make)
    yield session
    session.close()


def block(code: str) -> TextAction:
    return TextAction(text=f"```python\n{code}\n```")


def test_an_episode(session: CenoteEnvironment) -> None:
    """Steps share a namespace; the last observation has the score as its reward."""
    assert "Sum up `rows` in `total`." == session.reset(seed=1, episode_id="one").text
    first = session.step(block("print(rows)\nhalf = rows[0]"))
    assert ("[1, 2, 3]", False, 0.0) == (first.text.strip(), first.done, first.reward)
    last = session.step(block("total = half + sum(rows[1:])\nreply('done')"))
    assert (True, 1.0, "done") == (last.done, last.reward, last.metadata["answer"])
    assert ("one", 2) == (session.state.episode_id, session.state.step_count)


def test_episodes_with_one_seed(session: CenoteEnvironment) -> None:
    """They draw the same numbers, from the same state."""
    drawn = []
    for _ in range(2):
        session.reset(seed=7)
        drawn.append(
            session.step(block("import random\nrows.append(1)\nprint(len(rows), random.random())")).text
        )
    assert drawn[0] == drawn[1]


def test_failures_are_observations(session: CenoteEnvironment) -> None:
    session.reset()
    failed = session.step(block("1/0"))
    assert "ZeroDivisionError" in failed.text
    assert "task" == failed.metadata["verdict"]
    assert "limit" == session.step(block("while True: pass")).metadata["verdict"]
    spent = session.step(block("1"))
    assert (True, True) == (spent.done, spent.metadata["truncated"])


def test_what_is_refused(session: CenoteEnvironment) -> None:
    """A step before an episode, and a limit that a step does not have."""
    with pytest.raises(UsageError, match="reset"):
        session.step(block("1"))
    session.reset()
    with pytest.raises(UsageError, match="SandboxPolicy"):
        session.step(block("1"), timeout_s=5)


def test_behind_its_server() -> None:
    """Two sessions over WebSocket are two runtimes."""
    with (
        TestClient(environment_app(make, sessions=2)) as client,
        client.websocket_connect("/ws") as one,
        client.websocket_connect("/ws") as two,
    ):
        for line in (one, two):
            line.send_json({"type": "reset", "data": {"seed": 1}})
            assert "Sum up" in line.receive_json()["data"]["observation"]["text"]
        one.send_json({"type": "step", "data": block("mine = 1\nprint(mine)").model_dump()})
        assert "1" == one.receive_json()["data"]["observation"]["text"].strip()
        two.send_json({"type": "step", "data": block("print(mine)").model_dump()})
        assert "NameError" in two.receive_json()["data"]["observation"]["text"]
        one.send_json({"type": "step", "data": block("total = 6\nreply('6')").model_dump()})
        last = one.receive_json()["data"]
        assert (1.0, True) == (last["reward"], last["done"])
