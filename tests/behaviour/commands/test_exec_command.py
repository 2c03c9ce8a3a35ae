"""Tests of `cenote exec`, over real jails."""

from __future__ import annotations

import os
import signal
import subprocess
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.waiting import PATIENCE

from cenote.cli.local.execute import preload_for, source_of
from cenote_security.errors import UsageError

Cenote = Callable[..., subprocess.CompletedProcess[str]]


def test_output_value_and_status(cenote_here: Cenote) -> None:
    """stdout and stderr are separate, the value of the last expression is shown, success is status 0."""
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7"
    done = cenote_here("exec", "-c", code)
    assert (0, "out\n42\n", "err\n") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_a_file_and_standard_input(cenote: Cenote, tmp_path: Path) -> None:
    """A file runs as `__main__`; `-` reads standard input."""
    code = "if __name__ == '__main__':\n    print('main')\n"
    (tmp_path / "program.py").write_text(code)
    assert ["main\n"] * 2 == [cenote("exec", "program.py").stdout, cenote("exec", "-", text=code).stdout]


def test_failing_code_is_status_1(cenote_here: Cenote) -> None:
    """The user's frames are on stderr, none of Cenote's."""
    done = cenote_here("exec", "-c", "def f():\n    return 1 / 0\n\nf()")
    assert (1, "") == (done.returncode, done.stdout)
    assert "ZeroDivisionError" in done.stderr
    assert "return 1 / 0" in done.stderr
    assert "cenote" not in done.stderr


def test_refused_code_is_status_3(cenote_here: Cenote) -> None:
    """A rule's refusal gives the reason; nothing ran."""
    done = cenote_here("exec", "--rules", "strict", "-c", "print('ran')\nimport subprocess")
    assert (3, "") == (done.returncode, done.stdout)
    assert "subprocess" in done.stderr


def test_a_network_is_opened_by_name(cenote_here: Cenote) -> None:
    """With a list there is a proxy, which refuses other names; an invalid name is a usage error."""
    code = "import urllib.request\nurllib.request.urlopen('https://other.test/')"
    done = cenote_here(
        "exec", "--isolation", "strict", "--allow", "files.test", "--allow", "*.files.test:8443", "-c", code
    )
    assert (1, True) == (done.returncode, "other.test:443 is not on the allow-list" in done.stderr)
    assert 2 == cenote_here("exec", "--allow", "127.0.0.1", "-c", "1").returncode


def test_a_timeout_is_a_failure(cenote_here: Cenote) -> None:
    """A cell that runs too long ends, with status 1 and the reason."""
    done = cenote_here("exec", "--timeout", "0.5", "-c", "while True: pass")
    assert 1 == done.returncode
    assert "0.5" in done.stderr or "time" in done.stderr.lower()


def test_the_death_of_the_jail_is_a_failure(cenote_here: Cenote) -> None:
    """A crash is reported and does not crash the command."""
    done = cenote_here("exec", "-c", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert 1 == done.returncode
    assert "signal 11" in done.stderr


@pytest.mark.slow
def test_figures_are_saved(cenote_here: Cenote, tmp_path: Path) -> None:
    """With `--save`, a displayed figure becomes a file; otherwise it is mentioned."""
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    done = cenote_here("exec", "-c", code, "--save", "figures")
    assert (0, "[saved figures/figure-1.png]\n") == (done.returncode, done.stderr)
    assert (tmp_path / "figures" / "figure-1.png").read_bytes().startswith(b"\x89PNG")
    assert "image/png" in cenote_here("exec", "-c", code).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "told"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 143, "terminated"),
    ],
)
def test_a_signal_ends_it_cleanly(
    cenote_command: list[str], number: signal.Signals, status: int, told: str
) -> None:
    """Ctrl-C, or a signal from the parent process, ends the cell and the command: a status, one line, no trace."""
    command = [*cenote_command, "exec", "-c", "print('ready')\nwhile True: pass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    assert (status, f"cenote: {told}\n") == (process.returncode, errors)


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("print(1)", ()),
        ("import pandas as pd", ("pandas",)),
        ("def f():\n    from numpy.linalg import norm", ("numpy",)),
        ("import numpy, pandas.api", ("numpy", "pandas")),
        ("this is not Python", ()),
        ("import torch", ()),
    ],
)
def test_only_what_code_imports_is_preloaded(code: str, modules: tuple[str, ...]) -> None:
    """A short program does not wait for pandas."""
    assert modules == preload_for(code)


def test_code_on_a_command_line_is_utf8_in_any_locale() -> None:
    """Python decodes arguments by the locale, and escapes what it cannot decode."""
    in_ascii = "print('日本')".encode().decode("ascii", "surrogateescape")
    assert "print('日本')" == source_of(Namespace(code=in_ascii, file=None))
    with pytest.raises(UsageError, match=r"the code of -c is not UTF-8 text \(byte 7\)"):
        source_of(Namespace(code=os.fsdecode(b"print('\xff')"), file=None))
