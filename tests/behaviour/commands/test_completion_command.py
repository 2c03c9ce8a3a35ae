"""Completion of commands, as a real bash does it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cenote.cli.local.completion import SCRIPTS, command_tree
from cenote.cli.main import build_parser, main

COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_cenote
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "cenote.bash"
    path.write_text(SCRIPTS["bash"](tuple(command_tree(build_parser()))))
    return path


def completed(script: Path, *words: str, folder: Path | None = None) -> set[str]:
    """What bash offers for the last of the words."""
    done = subprocess.run(
        ["bash", "--norc", "-c", f"compopt() {{ :; }}\n{COMPLETE}", "bash", str(script), "cenote", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder or script.parent,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], {"run", "runtime"}),
        (["runtime", "sh"], {"show"}),
        (["runtime", "create", "--dur"], {"--durable"}),
        (["runtime", "create", "name", "--iso"], {"--isolation"}),
        (["runtime", "--address", "runtime", "l"], {"ls"}),
        (["audit", "export", "--format", ""], {"jsonl", "csv"}),
        (["audit", "export", "--format", "csv", "--js"], set()),
        (["completion", ""], {"bash", "fish", "zsh"}),
        (["logs", "--level", "w"], {"warning"}),
        (["status", "--wait", ""], set()),
        (["nothing", "--"], {"--help", "--version"}),
    ],
)
def test_bash_offers_what_can_come_next(script: Path, words: list[str], offered: set[str]) -> None:
    assert offered == completed(script, *words)


def test_every_command_and_option_is_offered(script: Path) -> None:
    """From the tree of parsers, whatever is added to it."""
    tree = list(command_tree(build_parser()))
    assert {"", "runtime ls", "job submit", "backup"} <= {command.path for command in tree}
    for command in tree[::4]:
        words = command.path.split()
        names = {name for option in command.options for name in option.names if name.startswith("--")}
        assert names == completed(script, *words, "--")
        if command.commands:
            assert set(command.commands) == completed(script, *words, "")


def test_files_are_offered_where_a_path_is_wanted(script: Path, tmp_path: Path) -> None:
    (tmp_path / "monday.cenote").touch()
    assert {"monday.cenote"} == completed(script, "restore", "mo", folder=tmp_path)
    assert {"monday.cenote"} == completed(script, "audit", "export", "--output", "mo", folder=tmp_path)
    assert set() == completed(script, "runtime", "show", "mo", folder=tmp_path)


def test_help_texts_cannot_end_their_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    """Words with quotes, dollars and backslashes stay words in each shell."""
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("a policy's" in line or "\\'" in line for line in lines)
    assert all(line.replace("\\'", "").count("'") % 2 == 0 for line in lines)


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_each_shell_reads_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    path = tmp_path / "script"
    path.write_text(SCRIPTS[shell](tuple(command_tree(build_parser()))))
    checked = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True)
    assert (0, "") == (checked.returncode, checked.stderr)


FISH = "source $argv[1]; complete --do-complete $argv[2]"


def test_fish_offers_what_can_come_next(tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish here")
    path = tmp_path / "cenote.fish"
    path.write_text(SCRIPTS["fish"](tuple(command_tree(build_parser()))))

    def offered(line: str) -> set[str]:
        home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(["fish", "-c", FISH, str(path), line], capture_output=True, text=True, env=home)
        assert done.stderr == ""
        return {each.split("\t")[0] for each in done.stdout.splitlines()}

    assert {"run", "runtime"} == offered("cenote ru")
    assert {"show"} == offered("cenote runtime sh")
    assert {"--durable"} == offered("cenote runtime create --dur")
    assert {"jsonl"} == offered("cenote audit export --format j")
