"""Tests of `--credential`: it names where a secret is; neither a command line nor an error has it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cenote.cli.arguments import network_from
from cenote.cli.main import build_parser
from cenote.cli.platform.job import _terms
from cenote_security.errors import UsageError
from cenote_security.network import Allow, Secret

Cenote = Callable[..., subprocess.CompletedProcess[str]]

HOST = "api.example.test"
SECRET = "sk-very-secret-0123456789"
VERBS = [
    ("exec", "-c", "1"),
    ("run", "a task"),
    ("serve",),
    ("mcp",),
    ("runtime", "create", "r"),
    ("job", "submit", "tasks.jsonl"),
]


def network(*options: str, verb: tuple[str, ...] = ("exec", "-c", "1")) -> object:
    return network_from(build_parser().parse_args([*verb, *options]))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", SECRET)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_each_command_that_makes_jails_takes_it(verb: tuple[str, ...]) -> None:
    found = network("--allow", HOST, "--credential", f"{HOST}=env:API_KEY", verb=verb)
    assert Allow([HOST], credentials={HOST: Secret(SECRET)}) == found
    assert isinstance(found, Allow)
    assert SECRET == found.credentials[f"{HOST}:443"].value
    assert SECRET not in repr(found)


def test_the_policy_of_a_job_has_it() -> None:
    arguments = build_parser().parse_args(
        ["job", "submit", "tasks.jsonl", "--allow", HOST, "--credential", f"{HOST}=env:API_KEY"]
    )
    policy = _terms(arguments, None)["sandbox"]
    assert policy is not None
    assert policy.has_credentials


def test_header_scheme_and_paths(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    text = f"{HOST}:8443=file:{tmp_path / 'key'},scheme=Bearer,header=X-Api-Key,path=/v1/*,path=/status"
    found = network("--allow", f"{HOST}:8443", "--credential", text)
    assert isinstance(found, Allow)
    secret = found.credentials[f"{HOST}:8443"]
    assert f"Bearer {SECRET}" == secret.value
    assert ("X-Api-Key", ("/v1/*", "/status")) == (secret.header, tuple(secret.paths))


def test_several_hosts_have_their_own() -> None:
    found = network(
        *("--allow", HOST, "--allow", "b.test"),
        *("--credential", f"{HOST}=env:API_KEY", "--credential", "b.test=env:API_KEY,scheme=Basic"),
    )
    assert isinstance(found, Allow)
    assert {f"{HOST}:443", "b.test:443"} == set(found.credentials)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--credential", f"{HOST}=env:API_KEY"), f"add --allow {HOST}"),
        (("--allow", "b.test", "--credential", f"{HOST}=env:API_KEY"), "none of the destinations"),
        (("--allow", HOST, "--credential", f"{HOST}={SECRET}"), "never has it"),
        (("--allow", HOST, "--credential", f"{HOST}=env:{SECRET}"), "not set, or empty"),
        (("--allow", HOST, "--credential", f"{HOST}=env:API_KEY,{SECRET}"), "never has it"),
        (("--allow", HOST, "--credential", f"{HOST}=env:API_KEY,scheme={SECRET} \x01"), "printable ASCII"),
        (("--allow", HOST, "--credential", f"{HOST}=env:API_KEY,header=Host"), "header"),
        (("--allow", HOST, "--credential", f"{HOST}=file:/nonexistent/key"), "No such file"),
        (("--allow", HOST, *(("--credential", f"{HOST}=env:API_KEY") * 2)), "twice"),
    ],
    ids=["no list", "not listed", "a secret", "a name that is none", "more", "a bad value", "a bad header", "no file",
         "twice"],
)  # fmt: skip
def test_what_is_wrong_is_said_without_the_secret(options: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        network(*options)
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)


def test_no_code_in_the_jail_sees_it(cenote: Cenote) -> None:
    """Nor does the command line that other users of the machine see."""
    code = (
        "import os\n"
        "lines = [open(f'/proc/{n}/cmdline').read() for n in os.listdir('/proc') if n.isdigit()]\n"
        "'sk-very' + '-secret' in repr(os.environ) + ' '.join(lines)"
    )
    options = ("--isolation", "strict", "--allow", HOST, "--credential", f"{HOST}=env:API_KEY")
    done = cenote("exec", *options, "-c", code, API_KEY=SECRET)
    assert (0, "False\n") == (done.returncode, done.stdout)
    assert SECRET not in done.stderr + " ".join(done.args)
