"""`cenote completion`: what a shell completes, written once from the parsers of the commands."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote.cli.exit_status import ExitStatus

_FILES: Final = frozenset({"FILE", "DIR", "FOLDER", "PATH"})
"""What parsers call values that are paths."""

EPILOG: Final = """bash: put `eval "$(cenote completion bash)"` into ~/.bashrc. zsh: the same with zsh, into ~/.zshrc,
after compinit. fish: cenote completion fish > ~/.config/fish/completions/cenote.fish"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "completion", help="print what makes a shell complete commands", epilog=EPILOG
    )
    parser.add_argument("shell", choices=sorted(SCRIPTS), help="for which shell")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    from cenote.cli.main import build_parser

    print(SCRIPTS[arguments.shell](tuple(command_tree(build_parser()))), end="")
    return ExitStatus.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedOption:
    """names: such as `--json`. values: the only ones it takes. takes_value, takes_file: whether one follows."""

    names: tuple[str, ...]
    help: str
    values: tuple[str, ...] = ()
    takes_value: bool = False
    takes_file: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedCommand:
    """path: the words that lead to it, joined by spaces; empty for `cenote` itself. commands: with their helps.

    values: that an argument can have. takes_file: whether an argument is a path.
    """

    path: str
    options: tuple[CompletedOption, ...]
    commands: dict[str, str]
    values: tuple[str, ...] = ()
    takes_file: bool = False


def command_tree(parser: argparse.ArgumentParser, path: str = "") -> Iterator[CompletedCommand]:
    """The command of a parser, and all below it."""
    options, values, takes_file = [], list[str](), False
    below: argparse._SubParsersAction[argparse.ArgumentParser] | None = None
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = action
        elif action.option_strings:
            options.append(_option(action))
        else:
            values += map(str, action.choices or ())
            takes_file = takes_file or _is_file(action)
    helps = {choice.dest: choice.help or "" for choice in below._choices_actions} if below else {}
    yield CompletedCommand(
        path=path, options=tuple(options), commands=helps, values=tuple(values), takes_file=takes_file
    )
    for name, one in (below.choices if below else {}).items():
        yield from command_tree(one, f"{path} {name}".strip())


def _option(action: argparse.Action) -> CompletedOption:
    return CompletedOption(
        names=tuple(action.option_strings),
        help=" ".join((action.help or "").replace("%%", "%").split()),
        values=tuple(map(str, action.choices or ())),
        takes_value=action.nargs != 0,
        takes_file=_is_file(action),
    )


def _is_file(action: argparse.Action) -> bool:
    return action.nargs != 0 and (action.type is Path or action.metavar in _FILES)


def bash(commands: tuple[CompletedCommand, ...]) -> str:
    """A function that goes along the words to the command that they name, and completes the last word."""
    paths = [command.path for command in commands if command.path]
    with_value = [
        f"{command.path} {name}".strip()
        for command in commands
        for option in command.options
        if option.takes_value
        for name in option.names
    ]
    lines = [
        "_cenote() {",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= option= word i",
        "    COMPREPLY=()",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        "        word=${COMP_WORDS[i]} option=",
        '        case "$path${path:+ }$word" in',
        f'            {_alternatives(paths)}) path="$path${{path:+ }}$word" ;;',
        f"            {_alternatives(with_value)}) option=$word; ((i++)) ;;",
        "        esac",
        "    done",
        '    [[ -n $option && $option == "$prev" ]] || option=',
        '    case "$path${option:+ }$option" in',
    ]
    for command in commands:
        for option in (option for option in command.options if option.takes_value):
            names = [f"{command.path} {name}".strip() for name in option.names]
            lines.append(f"        {_alternatives(names)}) {_offer(option.values, option.takes_file)} ;;")
        words = [*command.commands, *command.values]
        flags = [name for option in command.options for name in option.names]
        lines += [
            f"        {_alternatives([command.path])})",
            f"            if [[ $cur == -* ]]; then {_offer(flags, False)}",
            f"            else {_offer(words, command.takes_file)}; fi ;;",
        ]
    return "\n".join([*lines, "    esac", "}", "complete -o bashdefault -F _cenote cenote", ""])


def _alternatives(texts: list[str]) -> str:
    return "|".join(shlex.quote(text) for text in texts)


def _offer(words: tuple[str, ...] | list[str], files: bool) -> str:
    if words:
        return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$cur"))'
    return 'compopt -o filenames; COMPREPLY=($(compgen -f -- "$cur"))' if files else ":"


def zsh(commands: tuple[CompletedCommand, ...]) -> str:
    """zsh runs functions for bash."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash(commands)}"


def fish(commands: tuple[CompletedCommand, ...]) -> str:
    """A line for each word; a function says which command the words before it name."""
    paths = [command.path for command in commands if command.path]
    lines = [
        "function __cenote_at",
        "    set -l path ''",
        "    for word in (commandline -opc)[2..-1]",
        '        switch (string trim -- "$path $word")',
        f"            case {' '.join(map(_fish, paths))}",
        '                set path (string trim -- "$path $word")',
        "        end",
        "    end",
        '    test "$path" = "$argv[1]"',
        "end",
        "complete -c cenote -f",
    ]
    for command in commands:
        start = f"complete -c cenote -n {_fish(f'__cenote_at {_fish(command.path)}')}"
        lines += [f"{start} -a {_fish(name)} -d {_fish(text)}" for name, text in command.commands.items()]
        lines += [f"{start} -a {_fish(value)}" for value in command.values]
        lines += [f"{start} -F"] if command.takes_file else []
        for option in command.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            value = f" -x -a {_fish(' '.join(option.values))}" if option.values else ""
            value = value or (" -r -F" if option.takes_file else " -x" if option.takes_value else "")
            lines.append(f"{start} {names}{value} -d {_fish(option.help)}")
    return "\n".join([*lines, ""])


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS: Final = {"bash": bash, "zsh": zsh, "fish": fish}
