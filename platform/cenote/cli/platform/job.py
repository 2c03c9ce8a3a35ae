"""`cenote job`: batch jobs of a platform, from a file of tasks to a file of results; see docs/jobs.md.

While a command waits, it shows how far the job is: one line that changes on a terminal, plain lines in a pipe.
A file of results is there as a whole or not at all. What was broken off goes on in the next command.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, Self

from cenote.cli.arguments import COMMAND, add_flags, add_network_options, given, network_from
from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.connection import add_verb, platform_destination
from cenote.gateway.jobs.rules import JobRules
from cenote.terminal.screen import BOLD, Screen, counted
from cenote_security.errors import CenoteError, UsageError
from cenote_security.policy import SandboxPolicy
from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote.jobs import Batch, Job, Jobs, JobStatus, ModelSpec, TaskError, TaskInfo, TaskResult
    from cenote.jobs.batch_format import Endpoint
    from cenote.jobs.client import JobTerms


class ResultsNotWrittenError(CenoteError):
    """The job is there, and its results; the file is not, as where a disk is full. job: its name."""

    def __init__(self, path: Path, job: str, error: OSError) -> None:
        super().__init__(path, job, error)
        self.path = path
        self.job = job
        self.error = error

    def __str__(self) -> str:
        return (
            f"{str(self.path)!r} cannot be written: {self.error.strerror}; the platform keeps the results: "
            f"`cenote job results {self.job} --output FILE` goes on with this file, or begins another"
        )


def check_place(path: Path) -> None:
    """Whether results can be put there, before anything is done for them. Raises UsageError."""
    if path.is_dir():
        raise UsageError(f"{str(path)!r} cannot be written: it is a folder; name a file")
    if str(path) == "-" or (path.exists() and not path.is_file()):
        # A file takes the place of what has its name: of a device, too.
        raise UsageError(
            f"{str(path)!r} cannot be written: it is no regular file; `cenote job results JOB` prints results"
        )
    if not path.parent.is_dir():
        raise UsageError(f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{str(path)!r} cannot be written: nothing can be put into {str(path.parent)!r}")


LineOf = Callable[["TaskResult"], Mapping[str, object]]
"""A result as an object of JSON. It has `index` and `status`, at its top or under `cenote`."""


def plain_line(result: TaskResult) -> Mapping[str, object]:
    return result.as_data()


class ResultFile:
    """Written beside its place, under a name with the job in it: a part of another job is never gone on with.

    line_of: what is written of a result. revision: of the job: a part from before tasks were done again does not
    count. Inside, `after` is the place in the input after which results are missing; lines and bad count all that are
    there, those of former commands too.
    """

    def __init__(self, path: Path, job: str, revision: int, line_of: LineOf = plain_line) -> None:
        check_place(path)
        path = path.resolve()  # a link stays one
        self._path = path
        self._line_of = line_of
        self._stem = f".{path.name}.{job[3:13]}-"
        self._part = path.with_name(f"{self._stem}{revision}.part")
        self.after = 0
        self.lines = 0
        self.bad = 0

    def __enter__(self) -> Self:
        """Raises UsageError where nothing can be written, or another command writes it."""
        try:
            self._file: BinaryIO = open(self._part, "a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another command writes {str(self._path)!r} now") from None
        except OSError as error:
            raise UsageError(f"{str(self._path)!r} cannot be written: {error.strerror}") from None
        self._read_former()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, result: TaskResult) -> None:
        line = json.dumps(self._line_of(result), ensure_ascii=False).encode("utf-8", "backslashreplace")
        self._file.write(line + b"\n")
        self._count(result.index, well=result.succeeded)

    def finish(self) -> None:
        """It is whole: now it is there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)
        for older in self._path.parent.glob(f"{_literal(self._stem)}*.part"):
            older.unlink(missing_ok=True)

    def _read_former(self) -> None:
        """Of a last line that is no whole one nothing stays."""
        self._file.seek(0)
        whole = 0
        for line in self._file:
            try:
                known = json.loads(line) if line.endswith(b"\n") else None
                if known is None:
                    break
                known = known.get("cenote", known)
                self._count(int(known["index"]), well=known["status"] == "succeeded")
            except (ValueError, KeyError, TypeError, AttributeError):
                break
            whole += len(line)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)

    def _count(self, index: int, *, well: bool) -> None:
        self.after, self.lines, self.bad = index, self.lines + 1, self.bad + (not well)


def _literal(text: str) -> str:
    """For a glob."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


LOOK_EVERY: Final = 1.0
SAY_EVERY: Final = 10.0
"""Seconds between two lines in a pipe at least, and only where something has changed."""


def watch(job: Job, screen: Screen, timeout: float | None = None) -> JobStatus:
    """Waits until it is over, for as long as that may take."""
    ends = None if timeout is None else time.monotonic() + timeout
    said, at = "", time.monotonic()
    while True:
        left = LOOK_EVERY if ends is None else min(LOOK_EVERY, ends - time.monotonic())
        status = job.wait(timeout=max(left, 0.0))
        line = _line(status)
        screen.progress(line)
        if status.is_over or (ends is not None and time.monotonic() >= ends):
            return status
        if not sys.stderr.isatty() and line != said and time.monotonic() - at >= SAY_EVERY:
            screen.note(line)
            said, at = line, time.monotonic()


def _line(status: JobStatus) -> str:
    failed = f", {status.failed} failed" if status.failed else ""
    waits = f"; waits for {status.waiting_for}" if status.waiting_for else ""
    tasks = counted(status.tasks, "task")
    return f"{status.name}: {status.over} of {tasks} over{failed}, {status.running} running{waits}"


SUBMIT_EPILOG = """\
FILE has one JSON object a line: {"id": "a", "code": "1 + n", "variables": {"n": 2}}, or "task", a text
for an agent, instead of "code". With --batch it has requests of OpenAI's batch API. Prints the name of the job.
Exit status: 0 it was submitted (with --wait or --output: and all tasks succeeded), 1 a task failed, 2 lines or
options are wrong, 3 the platform refused it (nothing runs after 2 and 3), 4 the platform does not answer, 130 Ctrl-C;
a job that was submitted goes on."""


_STANDARD_INPUT: Final = Path("/dev/stdin")


def add_submit(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(verbs, "submit", "submit a file of tasks", submit, waits=False)
    parser.epilog = SUBMIT_EPILOG
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="tasks, one JSON object a line, or - for standard input"
    )
    parser.add_argument(
        "--batch",
        action="store_true",
        help="FILE, and that of --output, are in the form of OpenAI's batch API: each request is a task of an agent",
    )
    parser.add_argument("--name", default="", help="of the job (default: its id)")
    parser.add_argument("--key", default="", help="repeated with it, this gives the job that is there")
    parser.add_argument("--setup", metavar="FILE", type=Path, help="code that each runtime runs first")
    parser.add_argument("--result", default="", metavar="VARIABLE", help="whose value is a task's result")
    add_flags(parser, JobRules)
    agents = parser.add_argument_group("agents")
    agents.add_argument("--model", metavar="MODEL", help="a name that LiteLLM knows, such as openai/gpt-5")
    agents.add_argument(
        "--base-url", default="", metavar="URL", help="of a server of OpenAI's chat completions"
    )
    agents.add_argument("--key-env", metavar="NAME", help="variable of this environment with the model's key")
    agents.add_argument("--instructions", metavar="FILE", type=Path, help="who the agents are")
    agents.add_argument("--max-steps", type=int, metavar="N", help="of each agent (default 10)")
    agents.add_argument("--budget-tokens", type=int, metavar="N", help="of all agents together")
    agents.add_argument("--budget-cost", type=float, metavar="DOLLARS", help="of all agents together")
    jail = parser.add_argument_group("jail")
    add_flags(jail, SandboxPolicy, but=("timeout",))
    add_network_options(jail)
    parser.add_argument("--wait", action="store_true", help="wait until it is over")
    parser.add_argument("--output", type=Path, metavar="FILE", help="wait, and put the results there")
    parser.add_argument("--json", action="store_true", help="print the job as one JSON object")


def submit(arguments: argparse.Namespace) -> int:
    from cenote.connection import Platform

    if arguments.output is not None:
        check_place(arguments.output)
    screen, jobs = (
        Screen(),
        Platform(platform_destination(arguments.address, wait=arguments.answer_wait)).jobs,
    )
    source = _STANDARD_INPUT if str(arguments.file) == "-" else arguments.file
    batch = _batch(source) if arguments.batch else None
    job = jobs.submit(source if batch is None else batch.tasks, **_terms(arguments, batch))
    if not (arguments.wait or arguments.output):
        if arguments.json:
            report(job.status(), screen, as_json=True)
        else:
            screen.line(job.name)
        return ExitStatus.OK
    screen.note(f"submitted {job.name}")
    status = watch(job, screen)
    if arguments.output is not None:
        write_results(
            job, arguments.output, screen, follow=True, batch="" if batch is None else batch.endpoint
        )
    report(status, screen, as_json=arguments.json)
    return outcome(status)


def _batch(source: Path) -> Batch:
    from cenote.jobs import read_batch

    return read_batch(source)


def _terms(arguments: argparse.Namespace, batch: Batch | None) -> JobTerms:
    from cenote.team.budget import Budget

    secret = _secret(arguments.key_env)
    terms: JobTerms = {
        "name": arguments.name,
        "key": arguments.key,
        "model": _model(arguments, batch, with_key=bool(secret)),
        "secrets": {"key": secret} if secret else {},
        "sandbox": SandboxPolicy(
            **given(arguments, SandboxPolicy),
            network=network_from(arguments),
        ),
        "setup": _text(arguments.setup),
        "result": arguments.result,
        "max_steps": arguments.max_steps,
        "instructions": _text(arguments.instructions) or None,
        **given(arguments, JobRules),  # type: ignore[typeddict-item]  # its names are some of the terms'
    }
    if arguments.budget_tokens is not None or arguments.budget_cost is not None:
        terms["budget"] = Budget(tokens=arguments.budget_tokens, cost=arguments.budget_cost)
    return terms


def _model(arguments: argparse.Namespace, batch: Batch | None, *, with_key: bool) -> ModelSpec | None:
    """That of the options, with what a batch says about it."""
    from cenote.jobs import ModelSpec

    name = arguments.model or ("" if batch is None else batch.model)
    if not name:
        return None
    secret = "key" if with_key else ""
    parameters = {} if batch is None else batch.parameters
    return ModelSpec(name=name, base_url=arguments.base_url, secret=secret, parameters=parameters)


def _secret(name: str | None) -> str:
    if not name:
        return ""
    if not (secret := os.environ.get(name, "")):
        raise UsageError(f"--key-env names {name!r}, which this environment does not have")
    return secret


def _text(path: Path | None) -> str:
    try:
        return path.read_text(encoding="utf-8") if path is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error}") from None


CANCEL_PATIENCE: Final = 10.0
"""Seconds that `cancel` waits for what it has interrupted."""

MOST_NAMED: Final = 5

_COLUMNS = ("name", "state", "tasks", "over", "failed", "tokens", "created")

EPILOG = """Exit status: 0 all went well, 1 a task failed or was cancelled, 2 wrong usage or no such job, 3 the
platform refused it (nothing ran after 2 and 3), 4 the platform does not answer, 130 Ctrl-C; the job goes on."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "job", help="batch jobs of a platform: submit, follow, results", epilog=EPILOG
    )
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    add_submit(verbs)
    _add_json(add_verb(verbs, "ls", "list your jobs", list_all), "array")
    _add_json(_add_named(verbs, "show", "how far a job is", show), "object")
    waiting = _add_named(verbs, "wait", "wait until a job is over", wait)
    waiting.add_argument("--timeout", type=float, metavar="SECONDS", help="wait no longer than this")
    _add_json(waiting, "object")
    getting = _add_named(verbs, "results", "what came of its tasks, one JSON object a line", results)
    getting.add_argument("-f", "--follow", action="store_true", help="wait for tasks that are not over")
    getting.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="put them there, all at once when they are whole; one that was broken off goes on",
    )
    getting.add_argument(
        "--batch",
        nargs="?",
        const="chat",
        default="",
        choices=("chat", "responses"),
        help="in the form of OpenAI's batch API: chat completions, or responses",
    )
    logging = _add_named(verbs, "logs", "what the last attempt at a task did", logs)
    logging.add_argument("task", metavar="TASK", help="the task's id")
    _add_json(logging, "object")
    _add_json(_add_named(verbs, "cancel", "stop a job; what is done stays", cancel), "object")
    again = _add_named(verbs, "retry", "do tasks again that failed or were cancelled", retry, waits=False)
    again.add_argument("tasks", nargs="*", metavar="TASK", help="their ids; by default all of them")
    again.add_argument("--budget-tokens", type=int, metavar="N", help="instead of the job's budget")
    again.add_argument("--budget-cost", type=float, metavar="DOLLARS", help="instead of the job's budget")
    again.add_argument("--wait", action="store_true", help="wait until it is over")
    _add_json(again, "object")
    removing = add_verb(verbs, "rm", "end jobs and forget them, with their results", remove)
    removing.add_argument("names", nargs="+", metavar="NAME")


def list_all(arguments: argparse.Namespace) -> int:
    screen, found = Screen(), _jobs(arguments).list()
    if arguments.json:
        screen.line(json.dumps([status.as_data() for status in found], indent=2))
    elif not found:
        screen.note("no jobs; `cenote job submit FILE` makes one")
    else:
        _table(list(found), screen)
    return ExitStatus.OK


def show(arguments: argparse.Namespace) -> int:
    status = _job(arguments).status()
    report(status, Screen(), as_json=arguments.json)
    return ExitStatus.OK


def wait(arguments: argparse.Namespace) -> int:
    screen = Screen()
    status = watch(_job(arguments), screen, arguments.timeout)
    report(status, screen, as_json=arguments.json)
    return outcome(status)


def results(arguments: argparse.Namespace) -> int:
    job, screen = _job(arguments), Screen()
    if arguments.output is None:
        bad, line_of = False, _line_of(job, arguments.batch)
        for result in job.results(follow=arguments.follow):
            screen.line(json.dumps(line_of(result), ensure_ascii=False))
            bad = bad or not result.succeeded
        return ExitStatus.FAILED if bad else ExitStatus.OK
    return write_results(job, arguments.output, screen, follow=arguments.follow, batch=arguments.batch)


def _line_of(job: Job, batch: Endpoint | Literal[""]) -> LineOf:
    """batch: whose form; empty for that of Cenote."""
    from cenote.jobs import batch_line

    if not batch:
        return plain_line
    status = job.status()
    return partial(batch_line, job=job.id, model=status.model, endpoint=batch, created=status.created)


def write_results(
    job: Job, path: Path, screen: Screen, *, follow: bool, batch: Endpoint | Literal[""] = ""
) -> int:
    """Puts them into a file. Gives the exit status. Raises ResultsNotWrittenError; UsageError for no such place."""
    try:
        with ResultFile(path, job.id, job.status().revision, _line_of(job, batch)) as file:
            for result in job.results(follow=follow, after=file.after):
                file.add(result)
                screen.progress(f"{job.name}: {counted(file.lines, 'result')}")
            file.finish()
    except OSError as error:  # such as a full disk
        raise ResultsNotWrittenError(path, job.name, error) from None
    screen.note(f"{path}: {described(file.lines, file.bad)}")
    return ExitStatus.FAILED if file.bad else ExitStatus.OK


def described(results: int, bad: int) -> str:
    """Of a file of results, in words."""
    if not bad:
        return counted(results, "result")
    if results == 1:
        return "1 result, of a task that did not succeed"
    return f"{results} results, {bad} of which did not succeed"


def logs(arguments: argparse.Namespace) -> int:
    screen, log = Screen(), _job(arguments).logs(arguments.task)
    if arguments.json:
        screen.line(json.dumps({"text": log.text, "left_out": log.left_out}))
    else:
        screen.write(log.text)
        screen.end_line()
    return ExitStatus.OK


def cancel(arguments: argparse.Namespace) -> int:
    job, screen = _job(arguments), Screen()
    if (status := job.status()).is_over:
        screen.note(f"{status.name} was over already: nothing is cancelled")
    else:
        job.cancel()
        status = job.wait(timeout=CANCEL_PATIENCE)
        if not status.is_over:
            what = (
                f"{counted(status.running, 'task')} being stopped"
                if status.running
                else "it is being cancelled"
            )
            screen.note(f"{what}; see `cenote job show {status.name}`")
    report(status, screen, as_json=arguments.json)
    return ExitStatus.OK


def retry(arguments: argparse.Namespace) -> int:
    from cenote.team.budget import Budget

    job, screen, budget = _job(arguments), Screen(), None
    if arguments.budget_tokens is not None or arguments.budget_cost is not None:
        budget = Budget(tokens=arguments.budget_tokens, cost=arguments.budget_cost)
    wrong, found = _wrong_by_themselves(job, arguments.tasks)
    status = job.retry(arguments.tasks or None, budget=budget)
    if found:
        _say_what_stays_wrong(wrong, found, screen)
    if arguments.wait:
        status = watch(job, screen)
    report(status, screen, as_json=arguments.json)
    return outcome(status) if arguments.wait else ExitStatus.OK


def _wrong_by_themselves(job: Job, tasks: Sequence[str]) -> tuple[Sequence[TaskInfo], int]:
    """Those to be done again that failed of an error in their own code, which stays as it is: a few, and how many."""
    if tasks:
        named = [task for each in tasks if _is_wrong((task := job.task(each).info).error)]
        return named[:MOST_NAMED], len(named)
    found = sum(cause.tasks for cause in job.failures() if _is_wrong(cause.error))
    return list(
        islice(filter(lambda task: _is_wrong(task.error), _failed(job)), min(found, MOST_NAMED))
    ), found


def _failed(job: Job) -> Iterator[TaskInfo]:
    after = 0
    while page := job.tasks(after=after, states=("failed",)):
        yield from page
        after = page[-1].index


def _is_wrong(error: TaskError | None) -> bool:
    return (
        error is not None
        and error.stage in ("setup", "task", "result")
        and error.reason in ("exception", "result")
    )


def _say_what_stays_wrong(wrong: Sequence[TaskInfo], found: int, screen: Screen) -> None:
    shown = [printable(f"{task.id} ({task.error})", lines=False)[:200] for task in wrong]
    more = f", and {found - len(shown)} more" if found > len(shown) else ""
    screen.note(
        f"the code of these tasks is wrong, and is run again as it is: {', '.join(shown)}{more}; "
        f"to change code, submit a job with it"
    )


def remove(arguments: argparse.Namespace) -> int:
    screen, jobs = Screen(), _jobs(arguments)
    for name in arguments.names:
        jobs.get(name).remove()
        screen.line(f"removed {name}")
    return ExitStatus.OK


def outcome(status: JobStatus) -> int:
    """The exit status of a command that has waited for a job."""
    return ExitStatus.OK if status.is_over and not status.failed + status.cancelled else ExitStatus.FAILED


def report(status: JobStatus, screen: Screen, *, as_json: bool) -> None:
    if as_json:
        screen.line(json.dumps(status.as_data(), indent=2))
        return
    screen.line(f"{status.name}: {status.state}", BOLD)
    parts = ("waiting", "running", "succeeded", "failed", "cancelled")
    counts = ", ".join(f"{getattr(status, part)} {part}" for part in parts if getattr(status, part))
    screen.line(f"  {counted(status.tasks, 'task')}: {counts}")
    if status.waiting_for:
        screen.line(f"  waits for {status.waiting_for}")
    if status.tokens:
        screen.line(f"  {status.tokens} tokens, ${status.cost:.4f}")
    if status.ended:
        screen.line(f"  ended {_moment(status.ended)}, kept until {_moment(status.expires)}")


def _jobs(arguments: argparse.Namespace) -> Jobs:
    from cenote.connection import Platform

    return Platform(platform_destination(arguments.address, wait=arguments.answer_wait)).jobs


def _job(arguments: argparse.Namespace) -> Job:
    return _jobs(arguments).get(arguments.name)


def _add_named(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    handler: object,
    *,
    waits: bool = True,
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, text, handler, waits=waits)
    parser.add_argument("name", metavar="NAME", help="a name, or an id")
    return parser


def _add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print one JSON {what}")


def _table(found: list[JobStatus], screen: Screen) -> None:
    rows = [_COLUMNS, *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        screen.line(cells.rstrip(), *(() if number else (BOLD,)))


def _row(status: JobStatus) -> tuple[str, ...]:
    numbers = (status.tasks, status.over, status.failed, status.tokens)
    return (status.name, status.state, *map(str, numbers), _moment(status.created))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
