"""The compose file: valid, closed, and consistent with the image."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from tests.house.deploy.manifests import DEPLOY, Object, documents

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "compose.json").read_text())


@pytest.fixture
def compose() -> Object:
    (found,) = documents(DEPLOY / "compose.yaml")
    return found


@pytest.fixture
def service(compose: Object) -> Object:
    (found,) = compose["services"].values()
    return found


def test_it_fits_the_specification(compose: Object) -> None:
    """As far as it is used here."""
    jsonschema.validate(compose, SCHEMA)


@pytest.mark.parametrize(("key", "value"), [("readonly", True), ("mem_limit", "8gib"), ("command", "up")])
def test_a_mistake_is_seen(compose: Object, service: Object, key: str, value: object) -> None:
    """An unknown key, an unknown unit, a command that needs a shell to split it."""
    service[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(compose, SCHEMA)


def test_it_listens_on_the_loopback_of_the_machine_alone(service: Object) -> None:
    """Publishing to a network is the operator's decision."""
    assert ["127.0.0.1:8470:8470", "127.0.0.1:8480:8480"] == service["ports"]


def test_it_has_no_power(service: Object) -> None:
    """No root, no capability, no privilege escalation, a read-only image, and resource limits."""
    assert ("10001:10001", ["ALL"], True) == (service["user"], service["cap_drop"], service["read_only"])
    assert "no-new-privileges:true" in service["security_opt"]
    assert {"mem_limit", "pids_limit"} <= set(service)


def test_files_that_it_names_are_there(service: Object) -> None:
    """The Dockerfile and the seccomp profile."""
    build = service["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    (profile,) = (option for option in service["security_opt"] if option.startswith("seccomp="))
    assert (DEPLOY / profile.removeprefix("seccomp=")).is_file()


def test_what_it_keeps_is_in_a_volume_of_its_own(compose: Object, service: Object) -> None:
    """At the path where the image stores it."""
    assert ["state:/var/lib/cenote"] == service["volumes"]
    assert {"state"} == set(compose["volumes"])
    assert "VOLUME /var/lib/cenote" in (DEPLOY / "Dockerfile").read_text()
