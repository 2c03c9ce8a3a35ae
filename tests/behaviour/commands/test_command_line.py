"""The command line as a whole: behaviour common to all commands."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.metadata import version

import pytest

from cenote.cli.exit_status import ExitStatus, status_of
from cenote.cli.main import build_parser
from cenote_security.errors import CenoteError, IsolationUnavailableError, UnsafeValueError, UsageError

Cenote = Callable[..., subprocess.CompletedProcess[str]]


def test_version(cenote: Cenote) -> None:
    """`--version` prints the installed version."""
    assert f"cenote {version('cenote')}\n" == cenote("--version").stdout


def test_help_lists_the_commands() -> None:
    """Each command is in the help."""
    text = build_parser().format_help()
    assert [] == [name for name in ("demo", "run", "exec", "doctor") if f"\n    {name} " not in text]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["exec"],
        ["exec", "-c", "1", "file.py"],
        ["exec", "no-such-file.py"],
        ["exec", "-c", "1", "--memory", "lots"],
        ["exec", "-c", "1", "--timeout", "0"],
        ["runtime", "create", ""],
        ["run", "a task"],
        ["run", "a task", "--model", "m", "--data", "no-equals-sign"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2_and_one_message(arguments: list[str], cenote_here: Cenote) -> None:
    """Nothing ran, nothing is on stdout, the message is on stderr and is no stack trace."""
    done = cenote_here(*arguments)
    assert (2, "") == (done.returncode, done.stdout)
    assert "error" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["exec", "no\x1b]0;title\x07\u202e.py"],
        ["run", "t", "--no-such\x1b[2J"],
        ["exec", "-c", "1", "--memory", "\x1b[2J"],
    ],
)
def test_why_a_command_ends_is_printable(arguments: list[str], cenote_here: Cenote) -> None:
    """The line goes to a terminal, and a file's name or an argument may come from any source."""
    done = cenote_here(*arguments)
    assert 2 == done.returncode
    assert "\\x1b" in done.stderr
    assert done.stderr.replace("\n", "").isprintable()


@pytest.mark.parametrize(("words", "command"), [([], "exec"), (["runtime"], "wake")])
def test_who_names_no_command_is_told_which_there_are(
    words: list[str], command: str, cenote_here: Cenote
) -> None:
    """Otherwise a first attempt would only report missing arguments."""
    told = cenote_here(*words)
    assert (2, "") == (told.returncode, told.stdout)
    assert f"\n    {command} " in told.stderr
    assert "error: name one of these commands" in told.stderr


@pytest.mark.parametrize("command", [["up"], ["runtime", "ls"]], ids=" ".join)
def test_what_a_command_does_not_know_is_told_with_its_usage(command: list[str], cenote_here: Cenote) -> None:
    """Not with the usage of all commands, which does not help."""
    told = cenote_here(*command, "--no-such-option").stderr
    assert told.startswith(f"usage: cenote {' '.join(command)} ")
    assert "unrecognized arguments: --no-such-option" in told


def test_ctrl_c_while_commands_are_loaded_leaves_no_trace() -> None:
    """Loading takes a good part of a second, in which users may press Ctrl-C."""
    code = """
        import sys
        class Impatient:
            def find_spec(self, name, *_rest):
                if name == "cenote.cli.platform.status":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Impatient())
        from cenote.cli.main import main
        sys.exit(main(["status"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert (130, "cenote: interrupted\n") == (done.returncode, done.stderr)


@pytest.mark.slow
def test_the_package_is_the_program_too() -> None:
    """For an interpreter whose programs are not on the path."""
    done = subprocess.run(
        [sys.executable, "-m", "cenote", "exec", "-c", "print(6 * 7)"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (0, "42\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x"), ExitStatus.USAGE),
        (UnsafeValueError("x.Y"), ExitStatus.REFUSED),
        (IsolationUnavailableError("strict", ("user namespaces",), "Do this."), ExitStatus.UNAVAILABLE),
        (CenoteError("x"), ExitStatus.FAILED),
    ],
)
def test_an_error_has_the_status_of_its_family(error: CenoteError, status: ExitStatus) -> None:
    """The exit status follows from what the caller can do."""
    assert status == status_of(error)


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(cenote_command: list[str]) -> None:
    """`cenote ... | head -1` ends quietly, with the status that a shell gives for SIGPIPE."""
    script = 'set -o pipefail; "$@" exec -c "while True: print(1)" --timeout 30 | head -1'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *cenote_command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("1\n", "", ExitStatus.BROKEN_PIPE) == (done.stdout, done.stderr, done.returncode)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "status", "stdout", "stderr"),
    [
        ("", 0, "\\xe9 \\U0001f389\n", ""),
        (">&-", 0, "", ""),
        (">&- 2>&- <&-", 0, "", ""),
        (">/dev/full", 1, "", "cenote: error: [Errno 28] No space left on device\n"),
    ],
)
def test_standard_streams_of_every_kind(
    cenote_command: list[str], redirection: str, status: int, stdout: str, stderr: str
) -> None:
    """A narrow encoding, closed streams, a full disk: a one-line error or a silent escape, never a traceback."""
    done = subprocess.run(
        ["bash", "-c", f'"$@" exec -c "print(\'\u00e9 \U0001f389\')" {redirection}', "bash", *cenote_command],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (status, stdout, stderr) == (done.returncode, done.stdout, done.stderr)
