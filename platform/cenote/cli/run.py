"""`cenote run`: one agent on a task, everything shown as it happens."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cenote.cli.data_files import DataFile, data_encoding, data_file, load
from cenote.cli.exit_status import ExitStatus
from cenote.cli.policy_options import add_policy_options, checker_from, policy_from
from cenote.terminal.screen import Screen
from cenote.terminal.transcript import Transcript
from cenote_security.errors import UsageError
from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote import CaveAgent
    from cenote.runtime import Variable

EPILOG = """The model's key comes from the environment variable of its provider, such as OPENAI_API_KEY.
Exit status: 0 the agent answered, 1 it did not, 2 wrong usage, 4 the model or the jail is not available,
130 Ctrl-C."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("run", help="one agent on a task, streaming", epilog=EPILOG)
    parser.add_argument("task", metavar="TASK", help="what the agent is to do")
    parser.add_argument(
        "--model",
        default=os.environ.get("CENOTE_MODEL"),
        metavar="MODEL",
        help="a name that LiteLLM knows, such as openai/gpt-5 (default: CENOTE_MODEL)",
    )
    parser.add_argument(
        "--data",
        type=data_file,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a file that the agent gets as a variable; may be given several times",
    )
    parser.add_argument(
        "--encoding",
        type=data_encoding,
        metavar="NAME",
        help="of the text in --data files, such as cp1252 (default: UTF-8, or what a byte-order mark says)",
    )
    parser.add_argument("--skills", type=Path, metavar="DIR", help="a folder of skills")
    parser.add_argument("--max-steps", type=int, default=10, metavar="N", help="default %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object per event")
    add_policy_options(parser)
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    from cenote import CaveAgent
    from cenote.models import LiteLLMModel
    from cenote.runtime import PythonRuntime
    from cenote.skills import SkillWarning

    if not arguments.model:
        raise UsageError("which model? name one with --model, or set CENOTE_MODEL; `cenote demo` needs none")
    screen = Screen()
    policy = policy_from(arguments)
    screen.progress("starting a jail")
    variables = load_all([replace(file, encoding=arguments.encoding) for file in arguments.data])
    with PythonRuntime(
        sandbox=policy, security_checker=checker_from(arguments), variables=variables
    ) as runtime:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SkillWarning)
            agent = CaveAgent(
                LiteLLMModel(model_id=arguments.model),
                runtime=runtime,
                max_steps=arguments.max_steps,
                skills_dir=arguments.skills,
            )
        for warning in caught:
            screen.note(f"cenote: warning: {printable(str(warning.message))}")
        return asyncio.run(follow(agent, arguments.task, screen, as_json=arguments.json))


def load_all(files: list[DataFile]) -> list[Variable]:
    """The files as variables, parsed in a jail that then ends; the values outlive it."""
    from cenote.runtime import PythonRuntime

    if not files:
        return []
    names = [file.name for file in files]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UsageError(f"--data gives {twice[0]!r} more than one file; name each variable once")
    with PythonRuntime() as scratch:
        return [load(file, scratch) for file in files]


async def follow(agent: CaveAgent, task: str, screen: Screen, *, as_json: bool) -> int:
    """Prints the agent's events until it ends; OK only if it answered."""
    transcript = Transcript(screen)
    status = ExitStatus.FAILED
    screen.progress("waiting for the model")
    async for event in agent.stream_events(task):
        if event.type.value == "final_response":
            status = ExitStatus.OK
        if as_json:
            screen.line(json.dumps({"type": event.type.value, "content": event.content}))
        else:
            transcript.show(event)
        screen.progress("running the code" if event.type.value == "code" else "waiting for the model")
    screen.clear_progress()
    return status
