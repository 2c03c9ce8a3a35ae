"""The manifests are accepted by Kubernetes and KubeRay: by schema, without a cluster."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
from tests.house.deploy.manifests import (
    KUBERNETES,
    SECRETS,
    Object,
    documents,
    objects,
    of_kind,
    pod_templates,
)

VERSIONS = ["1.33", "1.37"]
"""The oldest version with user namespaces for pods by default, and the newest that the schemas cover."""

KUBERAY = json.loads((Path(__file__).parent / "schemas" / "kuberay.json").read_text())
OWN = [found for found in objects() if found["kind"] != "RayCluster"]


def title(found: Object) -> str:
    return f"{found['kind']}-{found['metadata']['name']}"


@pytest.mark.sweep
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("found", OWN, ids=title)
def test_objects_fit_the_schema_of_kubernetes(found: Object, version: str) -> None:
    """Each object is valid, and has no field that Kubernetes does not know."""
    kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("owner", pod_templates())
def test_pod_templates_fit_the_schema_of_kubernetes(owner: str, version: str) -> None:
    """The same for templates inside custom resources."""
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": owner},
        "template": pod_templates()[owner],
    }
    kubernetes_validate.validate(template, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("found", documents(SECRETS), ids=title)
def test_examples_of_secrets_fit_the_schema_of_kubernetes(found: Object, version: str) -> None:
    """Kubernetes accepts a user's copy."""
    kubernetes_validate.validate(found, version, strict=True)


def test_a_misspelt_field_is_seen() -> None:
    """The check refuses what the server would drop silently."""
    wrong = copy.deepcopy(of_kind("Deployment")["cenote-gateway"])
    wrong["spec"]["template"]["spec"]["hostUser"] = False
    with pytest.raises(kubernetes_validate.ValidationError, match="hostUser"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_cluster_fits_what_kuberay_documents() -> None:
    """Fields, their types, and options of `ray start`."""
    jsonschema.validate(of_kind("RayCluster")["cenote"], KUBERAY)


@pytest.mark.parametrize(
    ("path", "value"),
    [(("rayStartParams", "num-cpus"), 0), (("rayStartParams", "num-cpu"), "0"), (("templates",), {})],
)
def test_what_kuberay_refuses_is_seen(path: tuple[str, ...], value: object) -> None:
    """A number for a string, an unknown option, an unknown field."""
    wrong = copy.deepcopy(of_kind("RayCluster")["cenote"])
    place = wrong["spec"]["headGroupSpec"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, KUBERAY)


def test_one_command_applies_every_file_but_the_optional_ones() -> None:
    """Each file of the folder is in the list."""
    (listed,) = documents(KUBERNETES / "kustomization.yaml")
    there = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert there == set(listed["resources"])


def test_names_are_taken_once() -> None:
    """No object replaces another that was applied before it."""
    names = [title(found) for found in objects()]
    assert sorted(set(names)) == sorted(names)
