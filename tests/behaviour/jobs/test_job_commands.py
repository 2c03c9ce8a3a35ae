"""`cenote job`: from a file of tasks to a file of results, on the command line."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from tests.support.orchestrator.studio import Studio
from tests.waiting import until

from cenote.cli.main import main
from cenote.cli.platform.job import ResultFile, described, watch
from cenote.connection import connect
from cenote.jobs import Job, JobStatus, TaskResult
from cenote.jobs.reports import status_of
from cenote.terminal.screen import Screen
from cenote_proto.v1 import job_pb2
from cenote_security.errors import UsageError

JOB = "jb_0123456789abcdef"


@pytest.fixture
def address(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CENOTE_ADDRESS", studio.address)
    return studio.address


@pytest.mark.parametrize("place", ["nowhere/out.jsonl", "."])
def test_nothing_is_submitted_whose_results_have_no_place(
    address: str, place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """This is checked before anything runs, as the exit status says."""
    tasks = tmp_path / "in.jsonl"
    tasks.write_text('{"code": "1"}\n')
    words = ["job", "submit", str(tasks), "--name", "homeless", "--output", str(tmp_path / place)]
    assert 2 == main(words)
    assert "cannot be written: " in capfd.readouterr().err
    assert 2 == main(["job", "show", "homeless"])


@pytest.mark.slow
def test_a_full_disk_under_the_results(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The error says how to get them later: the job is done, and has all of them."""
    tasks, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    tasks.write_text('{"code": "1"}\n')

    def finish(_file: ResultFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    words = ["job", "submit", str(tasks), "--memory", "256MiB", "--name", "full", "--output", str(output)]
    with monkeypatch.context() as patch:
        patch.setattr(ResultFile, "finish", finish)
        assert 1 == main(words)
    assert "No space left on device; the platform keeps the results: `cenote job results full" in (
        capfd.readouterr().err
    )
    assert 0 == main(["job", "results", "full", "--output", str(output)])
    assert ["succeeded"] == [record["status"] for record in records(output.read_text())]


def records(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("results", "bad", "said"),
    [
        (0, 0, "no results"),
        (1, 0, "1 result"),
        (1, 1, "1 result, of a task that did not succeed"),
        (3, 0, "3 results"),
        (3, 1, "3 results, 1 of which did not succeed"),
        (3, 3, "3 results, 3 of which did not succeed"),
    ],
)
def test_what_is_said_of_a_file_of_results(results: int, bad: int, said: str) -> None:
    """Successes are not counted as failures."""
    assert said == described(results, bad)


@pytest.mark.slow
def test_from_a_file_to_a_file(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`submit --output` waits, and its status says that a task failed; the other verbs describe it, as JSON too."""
    tasks, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    tasks.write_text('{"id": "good", "code": "x = k * 2"}\n{"id": "bad", "code": "print(1)\\nboom()"}\n')
    (tmp_path / "setup.py").write_text("k = 21")
    options = [
        "--setup",
        str(tmp_path / "setup.py"),
        "--result",
        "x",
        "--memory",
        "256MiB",
        "--name",
        "shell",
    ]
    assert 1 == main(["job", "submit", str(tasks), *options, "--output", str(output)])
    said = capfd.readouterr()
    assert "2 results, 1 of which did not succeed" in said.err
    assert "2 tasks: 1 succeeded, 1 failed" in said.out
    assert [tasks, output] == sorted(each for each in tmp_path.iterdir() if each.suffix != ".py")
    good, bad = records(output.read_text())
    assert (42, "succeeded", "NameError") == (good["value"], good["status"], bad["error"]["type"])  # type: ignore[index]
    assert 1 == main(["job", "results", "shell"])
    assert [good, bad] == records(capfd.readouterr().out)
    assert 0 == main(["job", "ls", "--json"])
    (listed,) = [each for each in json.loads(capfd.readouterr().out) if each["name"] == "shell"]
    assert ("done", 2, 1) == (listed["state"], listed["tasks"], listed["failed"])
    assert 0 == main(["job", "show", "shell"])
    assert "kept until" in capfd.readouterr().out
    assert 0 == main(["job", "logs", "shell", "bad"])
    assert "--- code: output\n1\n--- code: failed\n" in capfd.readouterr().out
    assert 1 == main(["job", "retry", "shell", "bad", "--wait", "--json"])
    said = capfd.readouterr()
    assert 1 == json.loads(said.out)["revision"]
    assert (
        "the code of these tasks is wrong, and is run again as it is: bad (NameError: name 'boom'" in said.err
    )
    assert 1 == main(["job", "wait", "shell"])
    capfd.readouterr()
    assert 0 == main(["job", "cancel", "shell"])  # nothing is left to stop
    assert "shell was over already: nothing is cancelled" in capfd.readouterr().err
    assert 0 == main(["job", "rm", "shell"])
    assert 2 == main(["job", "show", "shell"])
    assert "there is no job 'shell'" in capfd.readouterr().err
    tasks.write_text("nonsense\n[]\n")
    with tasks.open() as file:
        monkeypatch.setattr("cenote.cli.platform.job._STANDARD_INPUT", Path(f"/dev/fd/{file.fileno()}"))
        assert 2 == main(["job", "submit", "-"])
    said = capfd.readouterr()
    assert "line 1: it is no JSON" in said.err
    assert "line 2: it is a list" in said.err


def test_cancel_prints_what_became_of_it(
    address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It waits for the tasks that it has interrupted, so the printed result is final."""
    tasks = tmp_path / "in.jsonl"
    tasks.write_text('{"code": "1"}\n{"code": "while True: pass"}\n{"code": "2"}\n')
    words = ["--memory", "256MiB", "--concurrency", "1", "--name", "stopped"]
    assert 0 == main(["job", "submit", str(tasks), *words])
    until(lambda: (status := named("stopped").status()).running == 1 and status.succeeded == 1)
    capfd.readouterr()
    assert 0 == main(["job", "cancel", "stopped"])
    said = capfd.readouterr()
    assert ["stopped: cancelled", "  3 tasks: 1 succeeded, 2 cancelled"] == said.out.splitlines()[:2]
    assert "" == said.err
    assert 0 == main(["job", "retry", "stopped", "2"])
    assert "" == capfd.readouterr().err  # its code had no error
    assert 0 == main(["job", "rm", "stopped"])


def named(name: str) -> Job:
    return connect(None).jobs.get(name)


def result(index: int, status: str = "succeeded") -> TaskResult:
    return TaskResult(index=index, id=str(index), status=status)  # type: ignore[arg-type]


def test_a_file_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    """After the last whole line; meanwhile the final name does not exist."""
    path = tmp_path / "out [1].jsonl"
    with ResultFile(path, JOB, 0) as file:
        file.add(result(1))
        file.add(result(3, "failed"))
        file._file.write(b'{"index": 4, "stat')
    assert not path.exists()
    with ResultFile(path, JOB, 0) as file:
        assert (3, 2, 1) == (file.after, file.lines, file.bad)
        file.add(result(4))
        file.finish()
    assert [1, 3, 4] == [each["index"] for each in records(path.read_text())]
    assert [path] == list(tmp_path.iterdir())


def test_results_take_the_place_of_no_device(tmp_path: Path) -> None:
    """A file is put in place by its name: root could put one in the place of /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "to-pipe").symlink_to(pipe)
    for path in (pipe, tmp_path / "to-pipe", Path("-")):
        with pytest.raises(
            UsageError, match="it is no regular file; `cenote job results JOB` prints results"
        ):
            ResultFile(path, JOB, 0)
    assert pipe.is_fifo()


def test_a_link_to_a_file_of_results_stays_one(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    with ResultFile(link, JOB, 0) as results:
        results.add(result(1))
        results.finish()
    assert (True, 1) == (link.is_symlink(), len(file.read_text().splitlines()))


def test_a_part_of_another_job_or_revision_is_none_of_it(tmp_path: Path) -> None:
    """The file starts anew; parts of the same job go when one of them is whole, and others stay."""
    path = tmp_path / "out.jsonl"
    for job, revision in ((JOB, 0), ("jb_ffffffffffffffff", 0)):
        with ResultFile(path, job, revision) as file:
            file.add(result(1))
    with ResultFile(path, JOB, 1) as file:
        assert 0 == file.after
        with pytest.raises(UsageError, match="another command writes"), ResultFile(path, JOB, 1):
            pass
        file.finish()
    assert ["", "ffffffffff"] == sorted(each.name[11:21] for each in tmp_path.iterdir())


class Slow:
    """A job that is over after several polls."""

    def __init__(self, *over: int) -> None:
        self._over = list(over)

    def wait(self, timeout: float | None = None) -> JobStatus:
        over = self._over.pop(0)
        state = job_pb2.JobDescription.DONE if over == 3 else job_pb2.JobDescription.RUNNING
        counts = job_pb2.JobCounts(succeeded=over, waiting=3 - over)
        return status_of(job_pb2.JobDescription(name="slow", state=state, counts=counts))


def test_progress_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each change, and none twice; nothing when it is over, because its report says that."""
    monkeypatch.setattr("cenote.cli.platform.job.SAY_EVERY", 0.0)
    assert "done" == watch(Slow(0, 1, 1, 2, 3), Screen()).state  # type: ignore[arg-type]
    said = [f"slow: {over} of 3 tasks over, 0 running" for over in (0, 1, 2)]
    assert said == capsys.readouterr().err.splitlines()
