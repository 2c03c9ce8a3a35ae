"""`cenote job submit`: a file of tasks becomes a job."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cenote.cli.exit_status import ExitStatus
from cenote.cli.job_progress import watch
from cenote.cli.option_flags import add_flags, given
from cenote.cli.platform_line import add_verb, meant
from cenote.cli.result_file import check_place
from cenote.terminal.screen import Screen
from cenote_security.errors import UsageError
from cenote_security.network import Allow
from cenote_security.policy import SandboxPolicy
from cenote_worker.job_rules import JobRules

if TYPE_CHECKING:
    from cenote.jobs import ModelSpec
    from cenote.jobs.terms import JobTerms

EPILOG = """FILE has one JSON object a line: {"id": "a", "code": "1 + n", "variables": {"n": 2}}, or "task", a text
for an agent, instead of "code". Prints the name of the job. Exit status: 0 it was submitted (with --wait or --output:
and all tasks succeeded), 1 a task failed, 2 lines or options are wrong, 3 the platform refused it (nothing runs after
2 and 3), 4 the platform does not answer, 130 Ctrl-C; a job that was submitted goes on."""


_STANDARD_INPUT: Final = Path("/dev/stdin")


def add_submit(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(verbs, "submit", "submit a file of tasks", submit, waits=False)
    parser.epilog = EPILOG
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="tasks, one JSON object a line, or - for standard input"
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
    jail.add_argument(
        "--allow", action="append", metavar="NAME[:PORT]", help="what code may reach; may be repeated"
    )
    parser.add_argument("--wait", action="store_true", help="wait until it is over")
    parser.add_argument("--output", type=Path, metavar="FILE", help="wait, and put the results there")
    parser.add_argument("--json", action="store_true", help="print the job as one JSON object")


def submit(arguments: argparse.Namespace) -> int:
    from cenote.cli.job import outcome, report, write_results
    from cenote.connection import Platform

    if arguments.output is not None:
        check_place(arguments.output)
    screen, jobs = Screen(), Platform(meant(arguments.address, wait=arguments.answer_wait)).jobs
    job = jobs.submit(_STANDARD_INPUT if str(arguments.file) == "-" else arguments.file, **_terms(arguments))
    if not (arguments.wait or arguments.output):
        if arguments.json:
            report(job.status(), screen, as_json=True)
        else:
            screen.line(job.name)
        return ExitStatus.OK
    screen.note(f"submitted {job.name}")
    status = watch(job, screen)
    if arguments.output is not None:
        write_results(job, arguments.output, screen, follow=True)
    report(status, screen, as_json=arguments.json)
    return outcome(status)


def _terms(arguments: argparse.Namespace) -> JobTerms:
    from cenote.team.budget import Budget

    secret = _secret(arguments.key_env)
    terms: JobTerms = {
        "name": arguments.name,
        "key": arguments.key,
        "model": _model(arguments, with_key=bool(secret)),
        "secrets": {"key": secret} if secret else {},
        "sandbox": SandboxPolicy(
            **given(arguments, SandboxPolicy),
            network=Allow(arguments.allow) if arguments.allow else "none",
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


def _model(arguments: argparse.Namespace, *, with_key: bool) -> ModelSpec | None:
    from cenote.jobs import ModelSpec

    if not arguments.model:
        return None
    secret = "key" if with_key else ""
    return ModelSpec(name=arguments.model, base_url=arguments.base_url, secret=secret)


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
