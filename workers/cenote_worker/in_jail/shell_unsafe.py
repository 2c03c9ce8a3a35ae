"""Commands of a shell, inside the jail, for `!ls` and `%%bash`."""

from __future__ import annotations

import codecs
import os
import re
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cenote_worker.in_jail.bounded import bounded_str
from cenote_worker.in_jail.pristine import BUILTINS

if TYPE_CHECKING:
    from subprocess import Popen

__builtins__ = BUILTINS

_CHUNK = 64 * 1024
_REFERENCE = re.compile(r"(?<![\\$])\{([A-Za-z_]\w*)\}|(?<!\\)\$([A-Za-z_]\w*)")


def expand(command: str, namespace: Mapping[str, object]) -> str:
    """Puts values in for `{name}` and `$name` where the namespace has that name; the rest is the shell's."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return bounded_str(namespace[name], 100_000) if name in namespace else match[0]

    return _REFERENCE.sub(value, command)


def run_shell(command: str, shell: str = "sh") -> int:
    """Runs a command and prints its output as it comes, stderr included. Returns the exit status.

    A command that ends in `&` is left running in the background.
    """
    if command.rstrip().endswith("&") and not command.rstrip().endswith("&&"):
        _start(command, shell, piped=False)
        return 0
    process = _start(command, shell, piped=True)
    _follow(process)
    return process.returncode


def run_program(program: str, arguments: list[str], source: str) -> tuple[int, str, str]:
    """Runs a program that reads its source from stdin. Gives the exit status and what it wrote, both streams."""
    import subprocess

    done = subprocess.run(
        [program, *arguments],
        input=source.encode("utf-8", "surrogateescape"),
        capture_output=True,
        check=False,
    )
    out, err = (text.decode("utf-8", "backslashreplace") for text in (done.stdout, done.stderr))
    return done.returncode, out, err


def shell_lines(command: str) -> list[str]:
    """The lines that a command prints. Raises CalledProcessError when it fails."""
    import subprocess

    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode("utf-8", "backslashreplace").splitlines()


def _start(command: str, shell: str, *, piped: bool) -> Popen[bytes]:
    import subprocess  # 10 ms, and few cells start a process

    sys.stdout.flush()
    return subprocess.Popen(
        [shell, "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else None,
        stderr=subprocess.STDOUT if piped else None,
        start_new_session=True,  # so that an interrupt can end what the command has started
    )


def _follow(process: Popen[bytes]) -> None:
    assert process.stdout is not None
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    try:
        while data := os.read(process.stdout.fileno(), _CHUNK):
            sys.stdout.write(decoder.decode(data))
        process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        process.stdout.close()
