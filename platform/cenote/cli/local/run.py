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

from cenote.cli.arguments import add_policy_options, checker_from, policy_from
from cenote.cli.exit_status import ExitStatus
from cenote.cli.local.data_files import DataFile, data_encoding, data_file, load
from cenote.terminal.screen import Screen
from cenote.terminal.transcript import TranscriptPrinter
from cenote_security.errors import UsageError
from cenote_security.printable import printable

if TYPE_CHECKING:
    from cenote import CaveAgent
    from cenote.agent import Event
    from cenote.models import Model
    from cenote.runtime import Variable

EPILOG = """The model's key comes from the environment variable of its provider, such as OPENAI_API_KEY. A server
that is named with --base-url gets no key but that of --api-key.
Exit status: 0 the agent answered, 1 it did not, 2 wrong usage, 4 the model or the jail is not available,
130 Ctrl-C."""


_PROGRESS = {
    "code": "running the code",
    "code_delta": "the model writes code",
    "thinking": "the model is thinking",
}


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
        "--base-url",
        metavar="URL",
        help="a server of OpenAI's interface, such as http://localhost:11434/v1; --model is then its name there",
    )
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help="for that server, or the model's provider; others of this machine may see it: prefer the environment",
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
    from cenote.runtime import PythonRuntime
    from cenote.skills import SkillWarning

    if not arguments.model:
        raise UsageError("which model? name one with --model, or set CENOTE_MODEL; `cenote demo` needs none")
    model = model_from(arguments)
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
                model,
                runtime=runtime,
                max_steps=arguments.max_steps,
                skills_dir=arguments.skills,
            )
        for warning in caught:
            screen.note(f"cenote: warning: {printable(str(warning.message))}")
        return asyncio.run(follow(agent, arguments.task, screen, as_json=arguments.json))


def model_from(arguments: argparse.Namespace) -> Model:
    """The model that the arguments name: at a server of one's own, or at the provider in its name."""
    from cenote.models import LiteLLMModel, OpenAIServerModel

    if arguments.base_url is not None:
        return OpenAIServerModel(arguments.model, api_key=arguments.api_key, base_url=arguments.base_url)
    return LiteLLMModel(arguments.model, arguments.api_key)


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
    from cenote.agent import StoppedEvent, StopReason

    transcript = TranscriptPrinter(screen)
    status = ExitStatus.FAILED
    screen.progress("waiting for the model")
    async for event in agent.stream_events(task):
        kind = event.type.value
        if isinstance(event, StoppedEvent) and event.stop_reason is StopReason.COMPLETED:
            status = ExitStatus.OK
        if as_json:
            screen.line(json.dumps({"type": kind, "content": event.content, **_facts(event)}))
        else:
            transcript.show(event)
        screen.progress(_PROGRESS.get(kind, "waiting for the model"))
    screen.clear_progress()
    return status


def _facts(event: Event) -> dict[str, object]:
    """What the end of a run says besides its reason."""
    from cenote.agent import StoppedEvent

    if not isinstance(event, StoppedEvent):
        return {}
    usage = event.usage
    return {
        "steps": event.steps,
        "elapsed": round(event.elapsed, 3),
        "usage": {"prompt": usage.prompt, "cached": usage.cached, "completion": usage.completion},
    }
