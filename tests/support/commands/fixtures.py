"""Runs the `cenote` command as a user does, in a separate process or in the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cenote.cli.main import main

Finished = subprocess.CompletedProcess[str]


def carried_out(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> Finished:
    """The command in this process and environment."""
    capsys.readouterr()
    try:
        status = main(arguments)
    except SystemExit as usage:
        status = int(usage.code or 0)
    return Finished(arguments, status, *capsys.readouterr())


@pytest.fixture
def cenote_command() -> list[str]:
    """The words that start the command, for tests that need its process."""
    return [sys.executable, "-m", "cenote.cli.main"]


@pytest.fixture
def cenote(tmp_path: Path, cenote_command: list[str]) -> Callable[..., Finished]:
    """`cenote("exec", "-c", "1")` runs it in an empty folder and returns what `subprocess.run` returns."""

    def run(*arguments: str, text: str = "", **environment: str) -> Finished:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("CENOTE_")}
        return subprocess.run(
            [*cenote_command, *arguments],
            input=text,
            cwd=tmp_path,
            env=inherited | environment,
            capture_output=True,
            text=True,
            timeout=90,
        )

    return run


@pytest.fixture
def cenote_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    """The same in this process, which has imported everything once: with LiteLLM a new one takes seconds for that."""

    def run(*arguments: str, **environment: str) -> Finished:
        with monkeypatch.context() as patched:
            for name in [name for name in os.environ if name.startswith("CENOTE_")]:
                patched.delenv(name)
            for name, value in environment.items():
                patched.setenv(name, value)
            patched.chdir(tmp_path)
            return carried_out(arguments, capsys)

    return run
