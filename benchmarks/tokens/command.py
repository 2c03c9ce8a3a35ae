"""`python -m benchmarks tokens`: plays all conversations, prints tables, writes JSON."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.tokens.cave_agent_style import CAVE_AGENT_STYLE
from benchmarks.tokens.cenote_style import CENOTE_STYLES
from benchmarks.tokens.comparison import compare
from benchmarks.tokens.conversations import CONVERSATIONS
from benchmarks.tokens.json_style import JSON_STYLES
from benchmarks.tokens.report import render_data, render_text
from benchmarks.tokens.style import Style
from cenote.tokens import count_tokens, encoding_name

STYLES: tuple[Style, ...] = (*CENOTE_STYLES, *JSON_STYLES, CAVE_AGENT_STYLE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = [conversation.name for conversation in CONVERSATIONS]
    parser.add_argument("--conversation", action="append", choices=names, help="only this; repeatable")
    parser.add_argument("--model", default="gpt-4.1", help="whose tokenizer counts (default: %(default)s)")
    parser.add_argument(
        "--json", type=Path, default=Path("benchmarks/results/tokens.json"), help="where data goes"
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the tables to stdout, progress to stderr."""
    chosen = [c for c in CONVERSATIONS if not arguments.conversation or c.name in arguments.conversation]
    styles = [style for style in STYLES if find_spec(style.library) is not None]
    count = partial(count_tokens, model_id=arguments.model)
    comparison = compare(chosen, styles, count, _show_progress)
    tokenizer = encoding_name(arguments.model)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(render_data(comparison, tokenizer), indent=1))
    print(render_text(comparison, tokenizer), end="")


def _show_progress(conversation: str, style: str) -> None:
    print(f"{conversation}: {style}", file=sys.stderr)
