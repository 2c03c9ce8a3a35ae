"""Episodes in a real jail: their start, their end, what remains."""

from __future__ import annotations

import gc
import resource
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.descriptors import all_closed
from tests.waiting import until

from cenote.rl import Environment, FinalState, Verdict
from cenote.runtime import PythonRuntime, Variable
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy

pytestmark = pytest.mark.usefixtures("where")

TASK = "Set x to the sum of the numbers."


def block(code: str) -> str:
    return f"So:\n```python\n{code}\n```"


def make_runtime() -> PythonRuntime:
    sandbox = SandboxPolicy(preload=("numpy",))
    return PythonRuntime(variables=[Variable("numbers", [1, 2, 3])], sandbox=sandbox)


def score(state: FinalState) -> float:
    return float("x" in {info.name for info in state.describe()} and state.retrieve("x") == 6)


@pytest.fixture
def environment() -> Iterator[Environment]:
    with Environment(TASK, make_runtime, score, max_steps=3) as environment:
        yield environment


@pytest.mark.at("embedded", "relayed")
def test_an_episode(environment: Environment) -> None:
    """Blocks run until the final answer; the final state determines the reward; reasoning is not part of it."""
    assert TASK == environment.reset()
    first = environment.step(block("numbers.append(0)\nsum(numbers)"))
    assert ("6", 0.0, False) == first[:3]
    environment.step(block("x = sum(numbers)"))
    last = environment.step("<think>0 + 1\n```python\nnumbers.clear()\n```\n</think>It is 6.")
    assert ("", 1.0, True, "It is 6.") == (*last[:3], last.info["answer"])
    with pytest.raises(UsageError, match="over"):
        environment.step("more")


def test_what_is_no_text_is_no_action(environment: Environment) -> None:
    """It is refused, and the episode continues."""
    environment.reset()
    with pytest.raises(UsageError, match="a text, not int"):
        environment.step(3)  # type: ignore[arg-type]
    assert environment.step("no block").done


@pytest.mark.at("embedded", "relayed")
def test_reset_brings_the_beginning_back(environment: Environment) -> None:
    """For any changes of variables in an episode, in the same runtime."""
    environment.reset()
    runtime = environment.runtime
    for _ in range(3):
        environment.step(block("numbers.append(9); x = 6"))
        environment.reset()
        assert ("([1, 2, 3], False)", runtime) == (
            environment.step(block("numbers, 'x' in globals()")).observation,
            environment.runtime,
        )


def test_replies_and_the_last_step_end_an_episode(environment: Environment) -> None:
    """`reply` in a block that succeeds is the answer; running out of steps is distinguished from an answer."""
    environment.reset()
    replied = environment.step(block("x = 6\nreply('six')"))
    assert (1.0, True, "six") == (replied.reward, replied.done, replied.info["answer"])
    environment.reset()
    steps = [environment.step(block("1 / 0")) for _ in range(3)]
    assert [False, False, True] == [step.done for step in steps] == [s.info["truncated"] for s in steps]
    assert "Error: ZeroDivisionError: division by zero" == steps[0].observation


def test_failures_of_the_machine_are_flagged(environment: Environment) -> None:
    """An episode whose runtime was ended from outside says nothing about its actions; the next one is normal."""
    environment.reset()
    environment.runtime.close()
    lost = environment.step(block("x = 6"))
    assert (0.0, True) == (lost.reward, lost.done)
    assert "RuntimeClosedError" in lost.info["infrastructure_failure"]
    environment.reset()
    assert 1.0 == environment.step(block("x = 6; reply('done')")).reward


def test_code_that_ends_its_process_is_the_models_own_fault(environment: Environment) -> None:
    """The episode continues from the state before that block; nothing is flagged."""
    environment.reset()
    crashed = environment.step(block("import os; os._exit(3)"))
    assert ("", False) == (crashed.info["infrastructure_failure"], crashed.done)
    assert "Error: " in crashed.observation


def test_a_jail_that_is_ended_from_outside_is_flagged(environment: Environment) -> None:
    """The block did not cause it, so the episode must be left out."""
    environment.reset()
    environment.step(block("y = 1"))
    warden = environment.runtime.core.backend.supervisor._ends.pidfd  # type: ignore[attr-defined]
    signal.pidfd_send_signal(warden, signal.SIGKILL)
    select.select([warden], [], [])  # it has ended: until then its worker may answer
    lost = environment.step(block("x = 6"))
    assert (0.0, True, Verdict("infrastructure")) == (lost.reward, lost.done, lost.info["verdict"])
    assert "killed from outside" in lost.info["infrastructure_failure"]
    environment.reset()
    assert 1.0 == environment.step(block("x = 6; reply('done')")).reward


def test_a_limit_that_code_meets_is_its_own(environment: Environment) -> None:
    """The limit is named, and the episode counts."""
    environment.reset()
    step = environment.step(block("held = bytearray(10**10)"))
    assert Verdict("limit", "memory") == step.info["verdict"]
    assert "" == step.info["infrastructure_failure"]
    assert environment.step(block("1")).info["verdict"] is None


def test_a_state_that_takes_for_ever_to_read_is_worth_nothing() -> None:
    """Otherwise code could have its episodes left out by an unreadable value."""
    policy = SandboxPolicy(preload=(), call_timeout=0.5)
    with Environment(TASK, lambda: PythonRuntime(sandbox=policy), score, max_steps=1) as environment:
        environment.reset()
        code = "class X(list):\n    def __reduce_ex__(self, _):\n        while True: pass\nx = [X()]"
        done = environment.step(block(code))
        assert (0.0, "") == (done.reward, done.info["infrastructure_failure"])


def test_a_state_that_cannot_be_read_is_worth_nothing(environment: Environment) -> None:
    """The model caused it, so it is not a failure of the machine; nor is a missing name."""
    environment.reset()
    done = environment.step(block("class X: pass\nx = X()\nreply('?')"))
    assert (0.0, True, "") == (done.reward, done.done, done.info["infrastructure_failure"])


def test_a_reward_is_a_number() -> None:
    """NaN would spoil an average; a missing reward is an error in the score."""
    given = iter([float("nan"), None])
    with Environment(TASK, make_runtime, lambda state: next(given)) as environment:
        environment.reset()
        assert 0.0 == environment.step("Done.").reward
        environment.reset()
        with pytest.raises(TypeError, match="a number, not None"):
            environment.step("Done.")


@pytest.mark.slow
def test_resets_leave_nothing_behind(request: pytest.FixtureRequest) -> None:
    """No process, no descriptor, no memory that grows with the number of episodes."""
    many = 1000 if request.config.getoption("--long", default=False) else 100
    with Environment(TASK, make_runtime, score) as environment:
        for _ in range(10):
            _play(environment)
        processes, memory = _held(environment)
        with all_closed():
            for _ in range(many):
                _play(environment)
            until(
                lambda: _held(environment)[0] <= processes
            )  # copies that are no longer kept take a moment to end
            # Other tests' threads release theirs.
            until(lambda: _held(environment)[1] - memory < 40 * 2**20)


def _play(environment: Environment) -> None:
    environment.reset()
    environment.step(block("x = bytearray(100_000); numbers.append(1)"))


def _held(environment: Environment) -> tuple[int, int]:
    """Processes in the jail, resident bytes of both."""
    gc.collect()
    environment.reset()
    status = environment.runtime.status()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return status.processes, resident + status.memory


DRAW = block("import random, numpy\nprint(random.random(), numpy.random.rand())")


def test_random_numbers_are_seeded_per_episode(environment: Environment) -> None:
    """No two episodes have the same numbers; an environment with the same seed, or the seed, reproduces them."""

    def drawn(seed: int | None = None) -> str:
        environment.reset(seed=seed)
        return environment.step(DRAW).observation

    first, second = drawn(), drawn()
    assert first != second
    assert second == drawn(environment.seed)
    with Environment(TASK, make_runtime, score) as again:
        again.reset()
        assert first == again.step(DRAW).observation
        again.reset()
        assert "set()" == again.step(block("{name for name in dir() if 'cenote' in name}")).observation


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "x"])
def test_a_seed_is_one_that_every_library_takes(environment: Environment, seed: object) -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match="a seed is a whole number"):
        environment.reset(seed=seed)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a seed is a whole number"):
        Environment(TASK, make_runtime, score, seed=seed)  # type: ignore[arg-type]


def test_code_in_another_form_is_an_action(environment: Environment) -> None:
    """Code that an agent would run, an episode runs; it is not a final answer."""
    environment.reset()
    step = environment.step("```\nx = sum(numbers)\nprint(x)\n```")
    assert ("6", False) == (step.observation, step.done)
