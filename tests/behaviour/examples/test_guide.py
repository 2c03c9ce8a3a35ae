"""The programs and commands of the README and of docs/ run as printed, and give the output printed below them.

A `python` block is a whole program; a `text` block after it is its output. In a `console` block lines that begin
with `$ ` are commands, and the others their output. `...` in an output stands for anything. Blocks of other
languages are not run; those that a reader could run begin with their requirements.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"# Needs .+\.\n")
NOT_RUN = {"README.md": 0, "docs/adapters.md": 13, "docs/data.md": 2, "docs/doors.md": 3, "docs/environments.md": 5,
           "docs/jobs.md": 2, "docs/operations.md": 2, "docs/other-languages.md": 1, "docs/platform.md": 2,
           "docs/runtime.md": 3}  # fmt: skip
"""Blocks of code that need more than this machine: a cluster, a key, the network."""

BLOCKS = [
    (f"{page.relative_to(ROOT)}:{page.read_text().count(chr(10), 0, block.start()) + 1}", *block.groups())
    for page in PAGES
    for block in FENCE.finditer(page.read_text())
]

MARK = "-- next --"
SHELL = """#!/bin/sh
case "$1" in
up) shift; set -- up --without-ray --port 0 "$@"; exec {python} -m cenote.cli.main "$@" ;;
*) exec {python} -m cenote.cli.main "$@" ;;
esac
"""
"""The command, with a platform that starts quickly and does not disturb another one: its output differs only in the
port."""


def fits(expected: str, shown: str) -> bool:
    pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*?")
    return re.fullmatch(pattern, shown.strip(), re.DOTALL) is not None


def blocks(language: str) -> list[object]:
    return [pytest.param(code, shown, id=place) for place, kind, code, shown in BLOCKS if kind == language]


@pytest.mark.sweep
@pytest.mark.parametrize(("code", "shown"), blocks("python"))
def test_a_program_shows_what_is_printed_below_it(
    code: str,
    shown: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In an empty folder, in a fresh namespace. All in one process, since each import would take seconds."""
    assert shown is not None, "no output is printed below it"
    for name in [name for name in os.environ if name.startswith(("CENOTE_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "guide", "exec", dont_inherit=True), {"__name__": "__main__"})
    printed, complaints = capsys.readouterr()
    assert "" == complaints
    assert fits(shown, printed), printed


@pytest.mark.slow
@pytest.mark.parametrize(("code", "shown"), blocks("console"))
def test_commands_show_what_is_printed_below_them(code: str, shown: str | None, tmp_path: Path) -> None:
    """In an empty home, in sequence in one shell."""
    assert shown is None
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cenote").write_text(SHELL.format(python=sys.executable))
    (folder / "cenote").chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("CENOTE_", "XDG_"))}
    environment |= {"HOME": str(tmp_path), "PATH": f"{folder}:{os.environ['PATH']}"}
    steps = [step.split("\n", 1) for step in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]]
    marked = "".join(f"{command}\necho {MARK}\n" for command, _ in steps)
    script = f"exec 2>&1\ntrap 'cenote down >/dev/null 2>&1' EXIT\n{marked}"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    printed = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8470", done.stdout).split(f"{MARK}\n")
    for (command, expected), told in zip(steps, printed, strict=False):
        assert fits(expected, told), f"$ {command}\n{told}"
    assert len(steps) < len(printed)


def test_what_is_not_run_says_what_it_needs() -> None:
    """Few blocks need more, and no more than are counted here."""
    counted = dict.fromkeys(NOT_RUN, 0)
    for place, kind, code, _shown in BLOCKS:
        if kind in ("py", "sh"):
            assert NEEDS.match(code), f"{place} does not begin with what it needs"
            counted[place.partition(":")[0]] += 1
        else:
            assert kind in ("python", "console", "text", "", "json", "yaml", "toml"), f"{place}: {kind}"
    assert NOT_RUN == counted
    # Programs of adapters need their frameworks; `make test-peers` runs an example of each.
    here = sum(count for page, count in NOT_RUN.items() if page != "docs/adapters.md")
    assert here < len(blocks("python")) + len(blocks("console"))
