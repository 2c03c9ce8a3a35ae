"""What cells see of the program that they run in, and which programs they start."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "http")]


@pytest.fixture
def runtime(make_runtime: Callable[..., PythonRuntime]) -> PythonRuntime:
    return make_runtime(sandbox=SandboxPolicy(snapshots="none"))


def test_a_program_with_a_parser_of_arguments_gets_none(runtime: PythonRuntime) -> None:
    """It would parse the arguments of the jail's process, and reject them."""
    code = "import argparse, sys\nargparse.ArgumentParser().parse_args(), sys.argv"
    assert "(Namespace(), [''])" == runtime.execute(code).value


@pytest.mark.parametrize(
    "code",
    [
        "!python -c 'import sys; print(sys.prefix)'",
        "import subprocess\nprint(subprocess.getoutput(\"python -c 'import sys; print(sys.prefix)'\"))",
    ],
)
def test_python_is_the_one_that_the_cell_is_in(runtime: PythonRuntime, code: str) -> None:
    """The system's Python may have none of its packages, or be missing."""
    assert f"{sys.prefix}\n" == runtime.execute(code).stdout


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import sys; print(1); print(2, file=sys.__stdout__); print(3)", "1\n2\n3\n"),
        ("import io, sys; sys.stdout = io.StringIO(); sys.stdout = sys.__stdout__; print(1, end='')", "1"),
        ("import ctypes; ctypes.CDLL(None).puts(b'1')", "1\n"),
    ],
)
def test_what_is_printed_past_sys_stdout_comes_with_its_own_cell(
    runtime: PythonRuntime, code: str, printed: str
) -> None:
    """It stayed in a buffer until some later cell had filled that."""
    assert printed == runtime.execute(code).stdout


@pytest.mark.at("embedded")
@pytest.mark.parametrize(
    "code",
    [
        "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0))",
        "import socket; socket.create_server(('', 8000))",
        "import http.server; http.server.HTTPServer(('', 8000), None)",
        "import asyncio\nawait asyncio.start_server(print, '127.0.0.1', 8000)",
        "import multiprocessing.connection as c; c.Listener(('127.0.0.1', 0))",
    ],
)
def test_a_program_that_listens_is_told_what_to_do_instead(runtime: PythonRuntime, code: str) -> None:
    """No port is open in a jail, including its own loopback; at `landlock` not even the socket."""
    said = str(runtime.execute(code).error)
    if runtime.isolation == "landlock":
        assert "this runtime has no network" in said
    else:
        assert "cannot listen on a port, not even on 127.0.0.1" in said
        assert "use a Unix socket" in said


@pytest.mark.at("embedded")
@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket().connect(('127.0.0.1', 1))",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:1')",
    ],
)
def test_a_program_that_connects_is_told_why_not(runtime: PythonRuntime, code: str) -> None:
    """Permission denied does not mention networks."""
    assert "this runtime has no network" in str(runtime.execute(code).error)


def test_a_file_that_ends_too_soon_has_nothing_to_do_with_a_terminal(runtime: PythonRuntime) -> None:
    """`EOFError` has causes other than `input`."""
    said = str(runtime.execute("import io, pickle; pickle.load(io.BytesIO(b''))").error)
    assert said.endswith("EOFError: Ran out of input")
