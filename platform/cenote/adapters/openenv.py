"""OpenEnv: a task in a runtime (`cenote.rl`) as an environment that its server offers over HTTP and WebSocket.

app = environment_app(lambda: Environment(task, make_runtime, score))        # uvicorn module:app
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from cenote.rl import Environment
from cenote_security.errors import UsageError
from cenote_security.extras import importing

with importing("the adapter for OpenEnv", "openenv"):
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment as OpenEnvironment
    from openenv.core.env_server.types import Action, Observation, State


class TextAction(Action):
    """text: a model's answer, in which one block is code; one without a block is the final answer."""

    text: str


class TextObservation(Observation):
    """text: what the code has shown; of a new episode, the task.

    Its metadata: `answer`, `truncated`, `verdict` (`task`, `limit` or `infrastructure`, None without a failure), and
    `infrastructure_failure`, why this episode is to be left out, empty where it counts. Of a new episode: `seed`.
    """

    text: str = ""


class CenoteEnvironment(OpenEnvironment):
    """Episodes of one task. OpenEnv makes an object for each session, and closes it.

    make: the environment of a session, with its runtime and its score.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, make: Callable[[], Environment]) -> None:
        super().__init__()
        self._make = make
        self._environment: Environment | None = None
        self._state = State()

    @property
    def environment(self) -> Environment:
        """That of the session. Raises UsageError before the first `reset`."""
        if self._environment is None:
            raise UsageError("there is no episode; call reset() first")
        return self._environment

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> TextObservation:
        """Begins an episode. seed: of its random numbers, from 0 to 2**32 - 1."""
        if self._environment is None:
            self._environment = self._make()
        task = self._environment.reset(seed=seed)
        self._state = State(episode_id=episode_id or uuid.uuid4().hex, step_count=0)
        return TextObservation(text=task, metadata={"seed": self._environment.seed})

    def step(self, action: TextAction, timeout_s: float | None = None, **more: Any) -> TextObservation:
        """Runs one answer of a model. Its limits are those of the runtime; `timeout_s` is refused."""
        if timeout_s is not None:
            raise UsageError("a step has the limits of its runtime: give them with its SandboxPolicy")
        transition = self.environment.step(action.text)
        self._state.step_count += 1
        return TextObservation(
            text=transition.observation,
            done=transition.done,
            reward=transition.reward,
            metadata=transition.as_data(),
        )

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()


def environment_app(make: Callable[[], Environment], *, sessions: int = 8, name: str = "cenote") -> Any:
    """An ASGI application. sessions: at once, each with a runtime of its own.

    It asks for no token: all that reach its address can run code in its jails.
    """
    return create_app(
        lambda: CenoteEnvironment(make),
        TextAction,
        TextObservation,
        env_name=name,
        max_concurrent_envs=sessions,
    )
