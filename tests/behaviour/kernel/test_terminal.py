"""Code that needs a terminal fails at once with a hint."""

import sys

import pytest


@pytest.mark.parametrize("code", ["input()", "input('Your name? ')", "while True:\n    input()"])
def test_input_is_refused(failing, code):
    error = failing(code)
    assert ("EOFError", True) == (error.type, "there is no terminal here" in error.message)


def test_a_loop_that_ends_with_the_input_ends(good):
    assert (
        "0" == good("n = 0\nwhile True:\n    try: input()\n    except EOFError: break\n    n += 1\nn").value
    )


def test_getpass_is_refused(apart):
    assert "there is no terminal here" in apart("import getpass\ngetpass.getpass()").cells[0]["error"]


def test_debuggers_are_refused(failing):
    assert "no terminal to debug from" in failing("breakpoint()").message


def test_pdb_is_refused(apart):
    assert "no terminal to debug from" in apart("import pdb\npdb.set_trace()\nx = 1").cells[0]["error"]


def test_help_is_plain_and_bounded(good, sink):
    good("def f(a):\n    'Does it.'\nhelp(f)\nhelp()\nhelp('len')")
    assert "f(a)\n    Does it.\n" in sink.out
    assert "\x08" not in sink.out
    good("import argparse; help(argparse)")
    assert 10_000 > len(sink.out)


def test_bare_exit_can_be_looked_at(good):
    assert "function" in good("exit").value


@pytest.mark.parametrize(
    "code",
    [
        "import io, sys\nsys.stdin = io.StringIO('5\\n7\\n')\nresult = input('? '), int(input())",
        "import sys\nopen('given', 'w').write('5\\n7\\n')\nsys.stdin = open('given')\n"
        "result = input('? '), int(input())",
        "import io\nfrom unittest import mock\nwith mock.patch('sys.stdin', io.StringIO('5\\n7')):\n"
        "    result = input('? '), int(input())",
    ],
)
def test_stdin_that_a_program_has_replaced_feeds_input(good, sink, monkeypatch, code):
    monkeypatch.setattr("sys.stdin", sys.stdin)
    assert "('5', 7)" == good(f"{code}\nresult").value
    assert "? " == sink.out


def test_the_file_that_is_stdin_may_be_replaced_too(apart):
    cells = apart(
        "import os\nopen('given', 'w').write('5\\n')\nos.dup2(os.open('given', 0), 0)\ninput()"
    ).cells
    assert "'5'" == cells[0]["value"]


def test_the_end_of_replaced_input(failing, monkeypatch):
    monkeypatch.setattr("sys.stdin", sys.stdin)
    assert "EOFError" == failing("import io, sys\nsys.stdin = io.StringIO('')\ninput()").type
