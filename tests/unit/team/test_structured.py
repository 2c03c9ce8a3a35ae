"""Several coroutines concurrently: none outlives the call."""

from __future__ import annotations

import asyncio

import pytest
from tests.waiting import PATIENCE

from cenote.team.concurrency import all_of, first_of, first_success, to_its_end
from cenote.team.errors import NoSuccessError


class Stage:
    """Jobs that end when the test says so, and record how."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.running = 0
        self.most = 0

    async def job(self, name: str, turns: int, error: Exception | None = None) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
            if error is not None:
                raise error
            self.ended.append(name)
            return name
        except asyncio.CancelledError:
            self.ended.append(f"{name} cancelled")
            raise
        finally:
            self.running -= 1


async def test_results_are_in_the_order_of_the_jobs() -> None:
    """Whichever ends first."""
    stage = Stage()
    assert ["a", "b"] == await all_of([stage.job("a", 5), stage.job("b", 1)])
    assert ["b", "a"] == stage.ended


async def test_at_most_so_many_run_at_once() -> None:
    """Exactly the limit, while there are enough jobs."""
    stage = Stage()
    await all_of([stage.job(str(number), 3) for number in range(10)], limit=3)
    assert (3, 10) == (stage.most, len(stage.ended))


async def test_a_failure_stops_the_others_and_is_raised_as_it_is() -> None:
    """A job that started in its place meanwhile included; nothing runs on."""
    stage = Stage()
    with pytest.raises(ConnectionError):
        await all_of([stage.job("a", 50), stage.job("b", 2, ConnectionError()), stage.job("c", 1)], limit=2)
    assert (["a cancelled", "c cancelled"], 0) == (stage.ended, stage.running)


async def test_the_first_to_end_decides() -> None:
    """With its result or its error; the others have ended by then."""
    stage = Stage()
    assert "b" == await first_of([stage.job("a", 50), stage.job("b", 2)])
    assert (["b", "a cancelled"], 0) == (stage.ended, stage.running)
    with pytest.raises(ConnectionError):
        await first_of([stage.job("a", 50), stage.job("b", 2, ConnectionError())])


async def test_the_first_to_succeed_decides() -> None:
    """Failures before it do not count."""
    stage = Stage()
    jobs = [stage.job("a", 1, ConnectionError()), stage.job("b", 50), stage.job("c", 3)]
    assert "c" == await first_success(jobs)
    assert (["c", "b cancelled"], 0) == (stage.ended, stage.running)


async def test_if_none_succeeds_all_errors_are_told() -> None:
    """In the order of the jobs, not of their ends."""
    stage = Stage()
    jobs = [stage.job("a", 9, ConnectionError("far")), stage.job("b", 1, ValueError("odd"))]
    with pytest.raises(NoSuccessError, match="ConnectionError: far; ValueError: odd") as failure:
        await first_success(jobs)
    assert [ConnectionError, ValueError] == [type(error) for error in failure.value.errors]


async def test_what_a_job_waits_for_may_be_cancelled_by_somebody_else() -> None:
    """That is a failure like others: the race continues, and does not wait for ever."""
    stage = Stage()
    future = asyncio.get_running_loop().create_future()
    future.cancel()

    async def waits() -> str:
        return await future

    assert "b" == await asyncio.wait_for(first_success([waits(), stage.job("b", 5)]), PATIENCE)


async def test_what_must_not_be_left_half_done_is_not() -> None:
    """A cancellation takes effect when the job has ended; its result and its error do at once."""
    stage = Stage()
    job = asyncio.ensure_future(to_its_end(stage.job("a", 10)))
    await asyncio.sleep(0)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert (["a"], 0) == (stage.ended, stage.running)
    assert "b" == await to_its_end(stage.job("b", 1))
    with pytest.raises(ConnectionError):
        await to_its_end(stage.job("c", 1, ConnectionError()))


@pytest.mark.parametrize("join", [all_of, first_of, first_success])
async def test_cancelling_cancels_all(join) -> None:
    """A caller that waits for several jobs is cancelled together with them."""
    stage = Stage()
    both = asyncio.ensure_future(join([stage.job("a", 10_000), stage.job("b", 10_000)]))
    for _ in range(4):
        await asyncio.sleep(0)
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
    assert (["a cancelled", "b cancelled"], 0) == (stage.ended, stage.running)
