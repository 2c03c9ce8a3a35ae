"""`cenote env build|ls|rm`, and a command that runs code in a built environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cenote.cli.main import main
from cenote_security.environment import Environment
from cenote_worker.environments.building import build
from cenote_worker.environments.store import EnvironmentStore


def env(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Status and output. For a wrong command line, argparse ends the program."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(str(ended.code))
    said = capsys.readouterr()
    return status, said.out, said.err


def test_what_is_wrong_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each; nothing is built."""
    for arguments, status, said in (
        (("build",), 2, "needs its packages"),
        (("build", "a", "--path", "/b"), 2, "not both"),
        (("build", "a", "--name", "a/b"), 2, "a name of an environment"),
        (("build", "a", "--python", "3.9"), 2, "run it with Python 3.9"),
        (("build", "absent", "--offline"), 4, "resolving the requirements failed"),
        (("rm", "absent"), 2, "cenote env build"),
    ):
        got = env("env", *arguments, capsys=capsys)
        assert (status, "", True) == (got[0], got[1], said in got[2]), got


def test_from_a_build_to_its_end(
    of: Callable[..., Environment], wheels: Path, kept: EnvironmentStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Built with progress, listed, used, removed."""
    options = ("--find-links", str(wheels), "--offline", "--name", "mine")
    status, out, err = env("env", "build", "greeting==1.0", "--json", *options, capsys=capsys)
    assert (0, "resolving 1 requirements\n") == (status, err.splitlines(keepends=True)[0])
    facts = json.loads(out)
    digest = facts["digest"]
    assert (["mine"], ["greeting==1.0", "tone==1.5"]) == (facts["names"], facts["packages"])
    again = env("env", "build", "greeting==1.0", *options, capsys=capsys)
    assert (0, f"{digest[:12]}  mine  2 packages", "") == (again[0], again[1].rpartition("  ")[0], again[2])
    listed = json.loads(env("env", "ls", "--json", capsys=capsys)[1])
    assert [(digest, False)] == [(each["digest"], each["in_use"]) for each in listed]
    assert again[1] == env("env", "ls", capsys=capsys)[1]
    ran = env("exec", "--environment", "mine", "-c", "import greeting; greeting.VERSION", capsys=capsys)
    assert (0, "'1.0'\n", "") == ran
    with kept.held(digest):
        status, _, err = env("env", "rm", "mine", capsys=capsys)
    assert (4, True) == (status, "in use" in err)
    # The command's zygote belongs to this process, which must end before its environment is removed.
    assert kept.is_held(digest)
    kept.name("loud", build(of("tone")).digest)
    assert (0, True) == (env("env", "rm", "loud", capsys=capsys)[0], "loud" not in kept.names())
