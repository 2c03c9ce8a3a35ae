"""SkyRL: a task in a runtime (`cenote.rl`) as an environment of its generators.

class Sums(CenoteTextEnv):
    def environment(self, extras): return Environment(extras["task"], make_runtime, score)
skyrl_gym.register("sums", "my_package:Sums")
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from cenote.rl import Environment
from cenote_security.errors import UsageError
from cenote_security.extras import importing

with importing("the adapter for SkyRL", "skyrl"):
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput


class CenoteTextEnv(BaseTextEnv):
    """One episode of a task: actions are a model's answers, observations what a block of code has shown.

    SkyRL makes an object for each episode, and closes it. Override `environment`.

    env_config: of SkyRL, for all episodes. extras: of one row of the data set.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.env_config = env_config
        self.extras: Mapping[str, Any] = extras or {}
        self._environment: Environment | None = None
        self._failure = ""

    @abstractmethod
    def environment(self, extras: Mapping[str, Any]) -> Environment:
        """The task of a row of the data set, its runtime and its score."""

    @property
    def running(self) -> Environment:
        """The environment of this episode. Raises UsageError before `init`."""
        if self._environment is None:
            raise UsageError("there is no episode; call init() first")
        return self._environment

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Begins the episode. An empty prompt becomes the task. Metadata: the seed of its random numbers."""
        if self._environment is None:
            self._environment = self.environment(self.extras)
        task = self._environment.reset()
        self.turns, self._failure = 0, ""
        return list(prompt) or [_user(task)], {"seed": self._environment.seed}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Runs one answer of the model.

        Metadata: `answer`, `truncated`, `verdict` (`task`, `limit` or `infrastructure`, None without a failure), and
        `infrastructure_failure`: the reason why this episode is to be left out, empty where it counts.
        """
        transition = self.running.step(action)
        self.turns += 1
        self._failure = transition.info["infrastructure_failure"]
        return BaseTextEnvStepOutput(
            observations=[] if transition.done else [_user(transition.observation)],
            reward=transition.reward,
            done=transition.done,
            metadata=transition.as_data(),
            postprocessed_action=action,
        )

    def get_metrics(self) -> dict[str, Any]:
        """The mean over episodes says how many steps they took, and which share of them is to be left out."""
        return {"steps": self.turns, "left_out": float(bool(self._failure))}

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
