"""The release workflow, as far as its file shows: what it runs, with which rights, on which versions; and its names.

Nothing here runs it.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml
from tests.house.deploy.manifests import DEPLOY, ROOT
from tests.house.deploy.test_dockerfile import instructions

FILE = ROOT / ".github" / "workflows" / "release.yml"
WORKFLOW: dict[Any, Any] = yaml.safe_load(FILE.read_text())
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
RUNS = [step["run"] for step in STEPS if "run" in step]


def step_of(action: str) -> dict[str, Any]:
    (found,) = [step for step in STEPS if step.get("uses", "").startswith(f"{action}@")]
    return found


def test_it_begins_with_a_tag_of_a_version() -> None:
    """`on` is a truth value in YAML 1.1."""
    assert {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}} == WORKFLOW[True]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)


def test_nothing_is_published_that_a_merge_would_not_pass() -> None:
    assert ".ci/run" in [step.get("run") for step in JOBS["check"]["steps"]]
    after: dict[str, list[str]] = {
        name: [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        for name, job in JOBS.items()
    }
    assert {"image": ["check", "distributions"], "publish": ["check", "distributions", "image"]} == {
        name: after[name] for name in ("image", "publish")
    }
    assert ["image", "publish"] == after["describe"]


def test_each_action_is_pinned_by_its_commit() -> None:
    """A tag can be moved. The comment beside it has the version."""
    lines = [line.strip(" -") for line in FILE.read_text().splitlines() if "uses:" in line]
    assert len(lines) == len([step for step in STEPS if "uses" in step])
    for line in lines:
        assert re.fullmatch(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_each_job_has_the_rights_that_it_needs() -> None:
    assert {} == WORKFLOW["permissions"]
    assert {
        "check": {"contents": "read"},
        "distributions": {"contents": "read"},
        "image": {"contents": "read", "packages": "write"},
        "publish": {"id-token": "write"},
        "describe": {"contents": "write", "packages": "write"},
    } == {name: job["permissions"] for name, job in JOBS.items()}
    for job in JOBS.values():
        assert job["timeout-minutes"]
    for step in STEPS:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_no_command_has_text_of_an_event_in_it() -> None:
    """A name of a tag or a user is a variable there, not a part of the program."""
    assert [] == [run for run in RUNS if "${{" in run]


def test_commands_are_good_shell() -> None:
    for run in RUNS:
        done = subprocess.run(["bash", "-n"], input=run, capture_output=True, text=True, check=False)
        assert (0, "") == (done.returncode, done.stderr), run


def test_the_image_is_built_on_a_digest_with_a_bill_of_materials() -> None:
    """The tag of the base is that of the Dockerfile."""
    (base,) = re.findall(r"^ARG BASE=(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert base == WORKFLOW["env"]["BASE"]
    build = step_of("docker/build-push-action")["with"]
    assert "deploy/Dockerfile" == build["file"]
    assert "BASE=${{ steps.names.outputs.base }}" == build["build-args"]
    assert (True, "mode=max") == (build["sbom"], build["provenance"])
    (names,) = [step["run"] for step in STEPS if step.get("id") == "names"]
    assert {"base", "image", "version"} == {*re.findall(r'echo "(\w+)=', names)}


def test_the_image_lists_its_packages() -> None:
    """After the last of them is installed, by a program that is not among them, where the image keeps it."""
    steps = [f"{name} {rest}" for name, rest in instructions((DEPLOY / "Dockerfile").read_text())]
    (made,) = [i for i, step in enumerate(steps) if "cyclonedx-py" in step]
    assert made > max(i for i, step in enumerate(steps) if "/opt/cenote/bin/pip install" in step)
    assert "COPY --from=build /opt/cenote /opt/cenote" in steps[made:]
    (tool,) = [step for step in steps if "cyclonedx-bom" in step]
    assert "/opt/sbom/bin/pip install" in tool
    (file,) = re.findall(r"--output-file (\S+)", steps[made])
    assert file in FILE.read_text()


@pytest.mark.parametrize("path", ["deploy/Dockerfile", "deploy/helm/cenote", "pyproject.toml", ".ci/run"])
def test_what_it_names_is_there(path: str) -> None:
    assert path in FILE.read_text()
    assert (ROOT / path).exists()


def test_it_says_that_it_has_not_been_run() -> None:
    assert "It has not been run yet" in FILE.read_text()
