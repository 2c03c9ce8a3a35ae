"""The process that is made ahead on a platform without Ray: given out once, replaced when it dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.workshop import BARE
from tests.support.orchestrator.studio import Scripts, Studio
from tests.support.processes import kill, title
from tests.waiting import until

from cenote.gateway.work import processes
from cenote.gateway.work.processes import Spare

ENDLESS = [{"code": "import time\nwhile True: time.sleep(0.01)"}]


class Process:
    def __init__(self) -> None:
        self.given: list[str] = []
        self.lives = True

    def give(self, settings: str) -> None:
        if not self.lives:
            raise BrokenPipeError
        self.given.append(settings)

    def wait(self, _patience: float) -> bool:
        return not self.lives

    def end(self) -> None:
        self.lives = False


class Maker:
    def __init__(self) -> None:
        self.made: list[Process] = []
        self.spare = Spare(self.make)

    def make(self) -> Process:
        self.made.append(Process())
        return self.made[-1]


def test_it_is_given_out_once() -> None:
    """The next work gets another one, and none of two tenants meet in a process."""
    maker = Maker()
    assert maker.spare.take("a") is None
    maker.spare.keep()
    maker.spare.keep()
    assert maker.made == [maker.spare.take("a")]
    assert maker.spare.take("b") is None
    maker.spare.keep()
    assert [["a"], []] == [process.given for process in maker.made]
    maker.spare.drop()
    maker.spare.drop()
    assert [True, False] == [process.lives for process in maker.made]


def test_one_that_died_takes_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again, after a pause: a machine without memory kills it again and again."""
    now = [0.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    maker = Maker()
    maker.spare.keep()
    maker.made[0].lives = False
    assert maker.spare.take("a") is None
    maker.spare.keep()
    for pause in (0.2, 0.6):
        made = len(maker.made)
        maker.made[-1].lives = False
        maker.spare.keep()
        now[0] += pause - 0.05
        maker.spare.keep()
        assert made == len(maker.made)
        now[0] += 0.1
        maker.spare.keep()
        assert made + 1 == len(maker.made)


def waiting_or_taken(studio: Studio) -> list[int]:
    """Processes that were made ahead."""
    return [pid for pid in studio.working("job") if '"work": ""' in title(pid)]


@pytest.mark.slow
def test_the_next_job_finds_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the waiting one was killed. None is left behind."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with Scripts() as models:
        studio = Studio(tmp_path / "state", models, spare=True).open()
        try:
            jobs = studio.connect().jobs
            first = jobs.submit(ENDLESS, sandbox=BARE)
            until(lambda: first.status().running)
            # The first job may have a process of its own, or the first spare: its title is the same when it has work.
            both = set(until(lambda: found if len(found := studio.working("job")) == 2 else []))
            second = jobs.submit(ENDLESS, sandbox=BARE)
            until(lambda: second.status().running)
            (following,) = until(lambda: set(waiting_or_taken(studio)) - both)
            kill(following)
            third = jobs.submit([{"code": "'done'"}], sandbox=BARE)
            assert ["'done'"] == [result.answer for result in third.results(follow=True)]
            assert both <= set(studio.working("job"))
            for job in (first, second):
                job.cancel()
            until(lambda: len(studio.working("job")) == 1)
        finally:
            studio.close()
        until(lambda: not studio.working("job"))
