"""All benchmarks, or one of them: `python -m benchmarks [KIND] [--help]`; see `KINDS`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

KINDS = {
    "batch": "jobs of one task from submission to result, beside Ray's own tasks",
    "data": "a function over a Ray Dataset, in jails and without",
    "doors": "what the way to a runtime costs: gRPC, HTTP, MCP",
    "environments": "starts in a built environment beside those with the client's packages",
    "harness": "steps that a patch has run again, against those it truly affects",
    "jail": "what a jail costs, beside no sandbox and other sandboxes",
    "limits": "how far a jail gets beyond its limits",
    "platform": "runtimes behind gRPC on Ray against other ways to serve namespaces",
    "questions": "what questions about a history of ten thousand steps cost",
    "record": "what a cell pays for the record of what it does",
    "runtime": "speed, memory and responsiveness against other runtimes",
    "state": "what it costs to keep a state, and to have it again",
    "tokens": "tokens of whole conversations against JSON tool calling",
    "tracking": "what it costs to know what a cell read and wrote",
}


def main(words: list[str]) -> None:
    """Each kind is imported only when it runs, so that one benchmark does not need another's dependencies."""
    if words and words[0] in KINDS:
        run(words[0], words[1:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    kinds = parser.add_subparsers(metavar="kind", help="all of them when none is named")
    for name, summary in KINDS.items():
        kinds.add_parser(name, help=summary)
    parser.parse_args(words)
    for name in KINDS:
        run(name, [])


def run(kind: str, words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {kind}", description=KINDS[kind])
    command = import_module(f"benchmarks.{kind}.command")
    command.add_arguments(parser)
    command.run(parser.parse_args(words))


if __name__ == "__main__":
    main(sys.argv[1:])
