"""The Dockerfile, by a small parser: no root, only packages from the network, only existing files are copied."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch

import pytest
from tests.house.deploy.manifests import DEPLOY, ROOT

from cenote_worker.wire.channels import ENVIRONMENT

KNOWN = {
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "RUN",
    "USER",
    "VOLUME",
    "WORKDIR",
}


def instructions(text: str) -> list[tuple[str, str]]:
    """Name and arguments, with continued lines joined and comments removed."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


@pytest.fixture
def dockerfile() -> list[tuple[str, str]]:
    return instructions((DEPLOY / "Dockerfile").read_text())


def last(found: list[tuple[str, str]], name: str) -> str:
    return [rest for one, rest in found if one == name][-1]


def test_instructions_are_joined() -> None:
    """The parser handles comments and continued lines, also across a comment."""
    text = "# one\nFROM a AS b\nRUN x \\\n  # two\n  && y\n"
    assert [("FROM", "a AS b"), ("RUN", "x && y")] == instructions(text)


def test_each_instruction_is_known(dockerfile: list[tuple[str, str]]) -> None:
    """ADD is not among them: it downloads, and unpacks archives."""
    assert set() == {name for name, _ in dockerfile} - KNOWN


def test_no_program_builds_it_but_the_builder() -> None:
    """A directive `syntax=` would fetch another one from a registry, by a mutable tag."""
    first, *_ = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert not re.match(r"#\s*\w+\s*=", first)


def test_stages_share_one_base(dockerfile: list[tuple[str, str]]) -> None:
    """The environment that one stage creates runs on the Python of the other."""
    assert ["${BASE} AS build", "${BASE}"] == [rest for name, rest in dockerfile if name == "FROM"]
    assert re.fullmatch(r"BASE=python:3\.1[123]-slim-\w+", dockerfile[0][1])


def test_it_runs_as_nobody_of_note(dockerfile: list[tuple[str, str]]) -> None:
    """By number, since Kubernetes cannot tell from a name whether it is root; and no later line reverts it."""
    assert "10001:10001" == last(dockerfile, "USER")
    after = [name for name, _ in dockerfile][[name for name, _ in dockerfile].index("USER") :]
    assert set() == {"RUN", "COPY"} & set(after)


def test_what_it_copies_exists_and_is_sent(dockerfile: list[tuple[str, str]]) -> None:
    """Each source is in the tree, and not excluded by the ignore file, which excludes all that is not named."""
    sent = {
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source.rstrip("/")
        for name, rest in dockerfile
        if name == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    }
    assert sent == copied
    assert [] == [source for source in copied if not (ROOT / source).exists()]


def test_a_change_of_code_installs_no_dependency_again(dockerfile: list[tuple[str, str]]) -> None:
    """They are installed from pyproject.toml, before any code is copied, and without the project itself."""
    asked = [sys.executable, str(ROOT / "scripts" / "dependencies.py"), "data,postgresql"]
    said = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert [*project["dependencies"], *extras["data"], *extras["postgresql"]] == said
    steps = [f"{name} {rest}" for name, rest in dockerfile]
    before = steps[: next(i for i, step in enumerate(steps) if step.startswith("COPY platform/"))]
    assert any("pip install" in step and "--requirement" in step for step in before)
    assert ["--no-deps ."] == [step[-11:] for step in steps[len(before) :] if "pip install" in step]


def test_packages_have_a_range(dockerfile: list[tuple[str, str]]) -> None:
    """Of Debian and of PyPI; the ranges of the dependencies in pyproject.toml are there."""
    runs = " ".join(rest for name, rest in dockerfile if name == "RUN")
    installed = re.search(r"apt-get install --yes --no-install-recommends (.+?) &&", runs)[1].split()
    assert [] == [package for package in installed if not fnmatch(package, '"*=*.[*]"')]
    assert '"ray[default]${RAY}"' in runs
    assert re.fullmatch(
        r'RAY=">=[\d.]+,<[\d.]+"', next(rest for _, rest in dockerfile if rest.startswith("RAY="))
    )


def test_no_secret_is_in_a_layer(dockerfile: list[tuple[str, str]]) -> None:
    """No build argument and no variable has a name that suggests one."""
    names = [
        word.partition("=")[0] for name, rest in dockerfile if name in ("ARG", "ENV") for word in rest.split()
    ]
    assert [] == [name for name in names if re.search("TOKEN|KEY|PASSWORD|SECRET", name)]


def test_grpc_finds_what_it_does_elsewhere(dockerfile: list[tuple[str, str]]) -> None:
    """In the nodes of a cluster too, which only Ray starts."""
    given = last(dockerfile, "ENV").split()
    assert [] == [f"{name}={value}" for name, value in ENVIRONMENT.items() if f"{name}={value}" not in given]


def test_commands_need_no_shell(dockerfile: list[tuple[str, str]]) -> None:
    """A shell would receive the signal that is to end the platform."""
    assert ["tini", "--", "cenote"] == json.loads(last(dockerfile, "ENTRYPOINT"))
    assert ["up", "--foreground"] == json.loads(last(dockerfile, "CMD"))
    assert ["cenote", "status", "--live"] == json.loads(last(dockerfile, "HEALTHCHECK").partition("CMD ")[2])
