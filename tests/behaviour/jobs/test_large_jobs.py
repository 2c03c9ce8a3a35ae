"""Jobs that are larger than what a process should hold: each side keeps a part of them in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cenote.jobs import BadTasksError, read_batch
from cenote.jobs.checks import TaskCheck
from cenote.jobs.source import tasks_of

MIB_OF_TASKS = 64
MIB_HELD = 32
"""Far less than the tasks, and far more than a process's usual ups and downs."""

MEASURED = """
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from tests.behaviour.jobs.test_large_jobs import {work}

work = {work}(Path(sys.argv[1]))
next(work)  # all that is loaded, and made once, is there
before = getrusage(RUSAGE_SELF).ru_maxrss
for _ in work:
    pass
print((getrusage(RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def given(count: int) -> Iterator[Mapping[str, object]]:
    for number in range(count):
        yield {"id": f"task {number}", "code": f"x = {number}", "variables": {"text": "y" * 2**10}}


def checked(_folder: Path) -> Iterator[None]:
    """A client's check of tasks, and their messages."""
    for count in (2_000, MIB_OF_TASKS * 2**10):
        sent = tasks_of(given(count), TaskCheck((), has_model=False))
        assert count == sum(len(message.tasks) for message in sent) == sent.tasks
        yield


def read(folder: Path) -> Iterator[None]:
    """A batch in OpenAI's form."""
    file = folder / "batch.jsonl"
    for count in (2_000, MIB_OF_TASKS * 2**10):
        with file.open("w") as lines:
            for number in range(count):
                body = {"model": "m", "messages": [{"role": "user", "content": "y" * 2**10}]}
                request = {"custom_id": f"r{number}", "url": "/v1/chat/completions", "body": body}
                lines.write(json.dumps(request) + "\n")
        batch = read_batch(file)
        assert count == sum(
            len(message.tasks) for message in tasks_of(batch.tasks, TaskCheck((), has_model=True))
        )
        yield


def stored(folder: Path) -> Iterator[None]:
    """The platform's side: what arrives, and what is read of it."""
    from tests.behaviour.jobs.test_job_submission import Desk
    from tests.support.gateway.world import World

    from cenote_proto.v1 import job_pb2

    world = World(folder)
    desk = Desk(world)
    for count in (2_000, MIB_OF_TASKS * 2**10):
        made = desk.jobs.begin(desk.principal, job_pb2.JobHead())
        for message in tasks_of(given(count), TaskCheck((), has_model=False)):
            desk.jobs.add(made, message.tasks)
        job = desk.jobs.complete(made, count).id
        assert "waiting" == desk.jobs.cancel(desk.principal, job).state or count < 5_000
        assert [] == desk.stores.job_tasks.failures(job)
        place = 0
        while page := desk.stores.job_tasks.results(job, place, whole=False):
            place = page[-1].index
        yield
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("work", ["checked", "read", "stored"])
def test_memory_does_not_grow_with_the_tasks(tmp_path: Path, work: str) -> None:
    root = Path(__file__).parents[3]
    words = [sys.executable, "-c", MEASURED.format(work=work), str(tmp_path)]
    done = subprocess.run(words, cwd=root, check=True, capture_output=True, text=True)
    assert float(done.stdout) < MIB_HELD


def test_a_batch_is_a_sequence(tmp_path: Path) -> None:
    requests = [
        {
            "custom_id": name,
            "url": "/v1/chat/completions",
            "body": {"model": "m", "messages": [{"role": "user", "content": f"About {name}"}]},
        }
        for name in ("one", "two", "three")
    ]
    tasks = read_batch(requests).tasks
    plain = [{"id": name, "task": f"About {name}"} for name in ("one", "two", "three")]
    assert tasks == plain
    assert (plain[-1], plain[1:], 3) == (tasks[-1], tasks[1:], len(tasks))
    assert tasks != plain[:2]
    with pytest.raises(IndexError):
        tasks[3]


def test_a_bad_line_at_the_end(tmp_path: Path) -> None:
    """It is named by its number in the file, and nothing was sent before it was found."""
    file = tmp_path / "tasks.jsonl"
    good = "".join(json.dumps(task) + "\n\n" for task in given(2_000))
    file.write_text(good + '{"id": "task 5", "code": "1"}\n{"code": 1}\n')
    with pytest.raises(BadTasksError) as caught:
        tasks_of(file, TaskCheck((), has_model=False))
    assert [(4001, "the id 'task 5' is that of line 11 too"), (4002, 'its "code" is a text, not a int')] == [
        (bad.line, bad.reason) for bad in caught.value.lines
    ]
