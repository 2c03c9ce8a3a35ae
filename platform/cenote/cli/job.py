"""`cenote job`: batch jobs of a platform, from a file of tasks to a file of results; see docs/jobs.md."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cenote.cli.exit_status import ExitStatus
from cenote.cli.job_progress import watch
from cenote.cli.job_submit import add_submit
from cenote.cli.parser import COMMAND
from cenote.cli.platform_line import add_verb, meant
from cenote.cli.result_file import ResultFile, ResultsNotWrittenError
from cenote.terminal.screen import BOLD, Screen, counted
from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote.jobs import Job, Jobs, JobStatus, TaskResult

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
    getting.add_argument("--follow", action="store_true", help="wait for tasks that are not over")
    getting.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="put them there, all at once when they are whole; one that was broken off goes on",
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
        bad = False
        for result in job.results(follow=arguments.follow):
            screen.line(json.dumps(result.as_data(), ensure_ascii=False))
            bad = bad or not result.succeeded
        return ExitStatus.FAILED if bad else ExitStatus.OK
    return write_results(job, arguments.output, screen, follow=arguments.follow)


def write_results(job: Job, path: Path, screen: Screen, *, follow: bool) -> int:
    """Puts them into a file. Gives the exit status. Raises ResultsNotWrittenError; UsageError for no such place."""
    try:
        with ResultFile(path, job.id, job.status().revision) as file:
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
            screen.note(
                f"{counted(status.running, 'task')} being stopped; see `cenote job show {status.name}`"
            )
    report(status, screen, as_json=arguments.json)
    return ExitStatus.OK


def retry(arguments: argparse.Namespace) -> int:
    from cenote.team.budget import Budget

    job, screen, budget = _job(arguments), Screen(), None
    if arguments.budget_tokens is not None or arguments.budget_cost is not None:
        budget = Budget(tokens=arguments.budget_tokens, cost=arguments.budget_cost)
    wrong = list(_wrong_by_themselves(job, arguments.tasks))
    status = job.retry(arguments.tasks or None, budget=budget)
    if wrong:
        _say_what_stays_wrong(wrong, screen)
    if arguments.wait:
        status = watch(job, screen)
    report(status, screen, as_json=arguments.json)
    return outcome(status) if arguments.wait else ExitStatus.OK


def _wrong_by_themselves(job: Job, tasks: Sequence[str]) -> Iterator[TaskResult]:
    """Those to be done again that failed of an error in their own code, which stays as it is."""
    for result in job.results():
        error = result.error
        if error is None or (tasks and result.id not in tasks):
            continue
        if error.stage in ("setup", "task", "result") and error.reason in ("exception", "result"):
            yield result


def _say_what_stays_wrong(wrong: list[TaskResult], screen: Screen) -> None:
    shown = [printable(f"{result.id} ({result.error})", lines=False)[:200] for result in wrong[:MOST_NAMED]]
    more = f", and {len(wrong) - len(shown)} more" if len(wrong) > len(shown) else ""
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

    return Platform(meant(arguments.address, wait=arguments.answer_wait)).jobs


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
