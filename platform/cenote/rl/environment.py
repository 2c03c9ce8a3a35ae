"""One task as an environment: actions are a model's texts, observations what it would be shown.

The interface is that of Gym (Brockman et al., 2016), without its spaces: both are plain text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypedDict

from cenote.agent.parse.block_parser import ALIASES, BlockParser
from cenote.agent.parse.intended_code import intent_of
from cenote.agent.parse.source import source_of
from cenote.agent.prompt.observation import NOTHING, cut, observe
from cenote.runtime.faces.final_state import FinalState, Score, check_score, scored
from cenote.runtime.faces.sync import PythonRuntime
from cenote_security.errors import CenoteError, UnavailableError, UsageError
from cenote_security.verdict import Verdict
from cenote_worker.execution.results import ExecutionResult

_START: Final = "start of the episode"
"""Label of the state that each episode begins with."""

MAX_OBSERVATION: Final = 5_000
"""Characters that an observation shows of a block's output, as for agents."""

EPISODES_PER_RUNTIME: Final = 500
"""Then another runtime is made: a runtime's record of its steps grows."""


_SEEDING: Final = """\
import sys as _cenote_sys
import random as _cenote_random
_cenote_random.seed({seed})
if "numpy.random" in _cenote_sys.modules:
    _cenote_sys.modules["numpy.random"].seed({seed})
if "torch" in _cenote_sys.modules:
    _cenote_sys.modules["torch"].manual_seed({seed})
del _cenote_sys, _cenote_random
"""
_SEEDING_RANDOM_ALONE: Final = """\
import random as _cenote_random
_cenote_random.seed({seed})
del _cenote_random
"""
"""For runtimes whose rules refuse the other one. Where they refuse `random` too, no code can draw from it."""

MAX_SEED: Final = 2**32
"""numpy takes seeds below it."""


class Info(TypedDict):
    """About one step. result: of its block, None without one. answer: the final one, None before it.

    infrastructure_failure: why this episode says nothing about its actions, empty when it does: leave it out.
    verdict: what the failure of the step is down to; None without one. Of an episode to leave out it does not count.
    truncated: whether the episode ended because its steps were used up.
    """

    result: ExecutionResult | None
    answer: str | None
    infrastructure_failure: str
    truncated: bool
    verdict: Verdict | None


class Transition(NamedTuple):
    """What a step gives. reward: 0 until the episode is done, then its score."""

    observation: str
    reward: float
    done: bool
    info: Info

    def as_data(self) -> dict[str, Any]:
        """Of `info`, what JSON can hold: `answer`, `truncated`, `infrastructure_failure`, the kind of the verdict."""
        info = self.info
        return {
            "answer": info["answer"],
            "truncated": info["truncated"],
            "verdict": None if info["verdict"] is None else info["verdict"].kind,
            "infrastructure_failure": info["infrastructure_failure"],
        }


@dataclass(slots=True)
class _Episode:
    """steps: taken so far."""

    steps: int = 0
    done: bool = False


class Environment:
    """Episodes of one task, each from the same state. Not for several threads at once. Close it.

    task: what `reset` gives, the first observation. make_runtime: makes a runtime with what the task needs; its state
    when it is given is where each episode begins. score: of the final state, as a reward. max_steps: of one episode.
    python_block_identifier: info string of the blocks that are code. seed: of the seeds of the episodes. Each episode
    begins with `random`, `numpy.random` and torch seeded: no two draw the same numbers, and the same episode of an
    environment with the same seed draws them again. What code seeds by itself, or takes from
    `random.SystemRandom`, `secrets` or `numpy.random.default_rng()` without a seed, is not covered.
    """

    def __init__(
        self,
        task: str,
        make_runtime: Callable[[], PythonRuntime],
        score: Score,
        max_steps: int = 10,
        *,
        python_block_identifier: str = "python",
        seed: int = 0,
    ) -> None:
        _check_seed(seed)
        if max_steps < 1:
            raise UsageError(f"an episode has at least one step, not {max_steps!r}")
        check_score(score)
        self.task = task
        self._make_runtime = make_runtime
        self._score = score
        self._max_steps = max_steps
        self._language = python_block_identifier
        self._runtime: PythonRuntime | None = None
        self._episodes = 0
        self._seeds = Random(seed)
        self._seed = 0
        self._episode: _Episode | None = None

    @property
    def seed(self) -> int:
        """The seed of the present episode: `reset(seed=...)` begins one that draws the same numbers."""
        return self._seed

    @property
    def runtime(self) -> PythonRuntime:
        """The one that the episode runs in. Raises UsageError before the first `reset` and after `close`."""
        if self._runtime is None:
            raise UsageError("there is no episode; call reset() first")
        return self._runtime

    def reset(self, *, seed: int | None = None) -> str:
        """Begins an episode in the state that the runtime was made in: milliseconds, by going back to a snapshot.

        seed: of its random numbers; None takes the next one of the environment's.

        Where that is not kept any more, or the runtime is lost, another one is made. Raises what `make_runtime`
        raises, and UnavailableError when its state cannot be kept.
        """
        if seed is not None:
            _check_seed(seed)
        if self._runtime is None or not self._back_at_start(self._runtime):
            self.close()
            self._runtime = self._make_runtime()
            self._runtime.snapshot(_START)
            self._episodes = 0
        self._episodes += 1
        self._seed = self._seeds.randrange(MAX_SEED) if seed is None else seed
        _plant(self._runtime, self._seed)
        self._episode = _Episode()
        return self.task

    def step(self, action: str) -> Transition:
        """Runs the block of a model's answer; an answer without one is the final answer, as is `reply(...)` in code.

        Raises UsageError outside of an episode. Never raises for what the code does, or for what the machine does:
        see `Info.infrastructure_failure`. What `score` raises of its own passes through.
        """
        episode, runtime = self._episode, self.runtime
        if episode is None or episode.done:
            raise UsageError("the episode is over; call reset() first")
        if not isinstance(action, str):
            raise UsageError(f"an action is a model's answer, a text, not {type(action).__name__}")
        episode.steps += 1
        parser = BlockParser(self._language)
        parser.feed(action)
        parser.finish(cut_off=False)
        try:
            return self._act(episode, runtime, parser.answer, self._code_of(parser))
        except CenoteError as error:
            episode.done = True
            if error.verdict.counts:  # such as a runtime whose time the code has used up
                return Transition("", 0.0, True, _info(None, None, verdict=error.verdict))
            return _left_out(f"{type(error).__name__}: {error}", error.verdict)

    def _code_of(self, parser: BlockParser) -> str | None:
        """What of an answer an agent would run, in whatever form."""
        if parser.code is not None:
            return source_of(parser.code)
        intent = intent_of(parser.answer) if self._language.lower() in ALIASES else None
        return None if intent is None else intent.code

    def close(self) -> None:
        """Ends the runtime. Closing twice is fine; `reset` makes another one."""
        runtime, self._runtime, self._episode = self._runtime, None, None
        if runtime is not None:
            runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _back_at_start(self, runtime: PythonRuntime) -> bool:
        if self._episodes >= EPISODES_PER_RUNTIME:
            return False
        try:
            runtime.rollback(_START)
        except CenoteError:  # not kept, or lost
            return False
        return True

    def _act(self, episode: _Episode, runtime: PythonRuntime, action: str, code: str | None) -> Transition:
        result = None if code is None else runtime.execute(code)
        if result is not None and result.error is not None and not result.error.verdict.counts:
            episode.done = True
            failure = f"{result.error.type}: {result.error.message}"
            return _left_out(failure, result.error.verdict, result)
        answer = action.strip() if result is None else result.reply if result.success else None
        spent = episode.steps >= self._max_steps
        episode.done = spent or answer is not None or (result is not None and result.state == "lost")
        shown = "" if result is None or code is None else _shown(result, code)
        reward = self._reward(runtime, result) if episode.done else 0.0
        return Transition(
            shown, reward, episode.done, _info(result, answer, truncated=spent and answer is None)
        )

    def _reward(self, runtime: PythonRuntime, result: ExecutionResult | None) -> float:
        """A state that the model's own code has ended, or made such that it cannot be read, is worth nothing.

        So is NaN.
        """
        if result is not None and result.state == "lost":
            return 0.0
        try:
            return scored(self._score, FinalState(runtime)) or 0.0
        except CenoteError as error:
            # It is in the hands of the model's code, which must not learn to end episodes without a reward.
            if not error.verdict.counts:
                raise
            return 0.0


def _check_seed(seed: object) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < MAX_SEED:
        raise UsageError(f"a seed is a whole number from 0 to {MAX_SEED - 1}, not {seed!r:.100}")


def _plant(runtime: PythonRuntime, seed: int) -> None:
    """Seeds the generators that there are. Raises UnavailableError where that cannot be done."""
    for code in (_SEEDING, _SEEDING_RANDOM_ALONE):
        error = runtime.execute(code.format(seed=seed)).error
        if error is None:
            return
        if error.reason != "policy":
            raise UnavailableError(f"the random numbers of the episode cannot be seeded: {error.message}")


def _shown(result: ExecutionResult, code: str) -> str:
    seen = observe(result, code)
    output = seen.output or ("" if seen.error else NOTHING)
    if len(output) > MAX_OBSERVATION:
        output = cut(output, MAX_OBSERVATION, "output")
    return "\n".join(part for part in (output, seen.error and f"Error: {seen.error}") if part)


def _left_out(failure: str, verdict: Verdict, result: ExecutionResult | None = None) -> Transition:
    """The end of an episode that says nothing about its actions."""
    info = Info(result=result, answer=None, infrastructure_failure=failure, truncated=False, verdict=verdict)
    return Transition("", 0.0, True, info)


def _info(
    result: ExecutionResult | None,
    answer: str | None,
    *,
    truncated: bool = False,
    verdict: Verdict | None = None,
) -> Info:
    found = verdict if result is None else result.verdict
    return Info(result=result, answer=answer, infrastructure_failure="", truncated=truncated, verdict=found)
