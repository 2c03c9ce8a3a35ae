"""A task in a runtime as an environment of SkyRL's generators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cenote import PythonRuntime, SandboxPolicy, Variable
from cenote.rl import Environment, FinalState

pytest.importorskip("skyrl_gym", reason="needs skyrl-gym: `make test-peers` has it")

import skyrl_gym

from cenote.adapters.skyrl import CenoteTextEnv
from cenote_security.errors import UsageError


class Sums(CenoteTextEnv):
    """`total` is to be the sum of `rows`."""

    def environment(self, extras: Mapping[str, Any]) -> Environment:
        rows = extras["rows"]

        def make() -> PythonRuntime:
            policy = SandboxPolicy(memory="512MiB", cell_timeout=5)
            return PythonRuntime(variables=[Variable("rows", rows)], sandbox=policy)

        def score(final: FinalState) -> float:
            return float(final.retrieve("total") == sum(rows))

        return Environment("Sum up `rows` in `total`.", make, score, max_steps=3)


@pytest.fixture
def env() -> Iterator[Sums]:
    env = Sums(extras={"rows": [1, 2, 3]})
    yield env
    env.close()


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def test_an_episode(env: Sums) -> None:
    """Turns share a namespace; the last one has the score as its reward, and no observation."""
    prompt, _ = env.init([])
    assert [{"role": "user", "content": "Sum up `rows` in `total`."}] == prompt
    first = env.step(block("print(rows)\nhalf = rows[0]"))
    assert ("[1, 2, 3]", 0.0, False) == (
        first["observations"][0]["content"].strip(), first["reward"], first["done"]
    )  # fmt: skip
    last = env.step(block("total = half + sum(rows[1:])\nreply('done')"))
    assert ([], 1.0, True, "done") == (
        last["observations"], last["reward"], last["done"], last["metadata"]["answer"]
    )  # fmt: skip
    assert {"steps": 2, "left_out": 0.0} == env.get_metrics()


def test_a_prompt_of_the_data_set(env: Sums) -> None:
    """It stays as it is; a second episode begins in the first state, with other random numbers."""
    given = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Sum up."}]
    prompt, first = env.init(given)
    assert given == prompt
    env.step(block("rows = 'gone'"))
    _, second = env.init(given)
    assert "[1, 2, 3]" in env.step(block("rows"))["observations"][0]["content"]
    assert first["seed"] != second["seed"]


def test_failures_are_observations(env: Sums) -> None:
    """Of code and of limits; the verdict says whose they are."""
    env.init([])
    failed = env.step(block("1/0"))
    assert "ZeroDivisionError" in failed["observations"][0]["content"]
    assert ("task", "") == (failed["metadata"]["verdict"], failed["metadata"]["infrastructure_failure"])
    assert "limit" == env.step(block("while True: pass"))["metadata"]["verdict"]
    spent = env.step(block("1"))
    assert (True, True, 0.0) == (spent["done"], spent["metadata"]["truncated"], spent["reward"])


def test_an_episode_to_leave_out(env: Sums) -> None:
    """A runtime that is gone says nothing about the answer: metadata and metrics say so."""
    env.init([])
    env.running.runtime.close()
    over = env.step(block("1"))
    assert over["done"]
    assert env.get_metrics()["left_out"] == float(bool(over["metadata"]["infrastructure_failure"]))


def test_made_as_generators_do() -> None:
    """Registered by its class, made with a configuration and a row of the data set."""
    skyrl_gym.register("cenote-sums", Sums)
    made = skyrl_gym.make("cenote-sums", env_config={"a": 1}, extras={"rows": [4]})
    made.init([])
    assert made.step(block("total = 4\nreply('4')"))["done"]
    made.close()


def test_without_an_episode() -> None:
    env = Sums(extras={"rows": [1]})
    with pytest.raises(UsageError, match="init"):
        env.step("x")
    env.close()
