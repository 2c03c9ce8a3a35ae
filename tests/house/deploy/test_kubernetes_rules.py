"""Properties of the manifests: no root, no secrets in files, only the gateway is exposed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.house.deploy.manifests import (
    DEPLOY,
    SECRETS,
    containers,
    documents,
    objects,
    of_kind,
    pod_templates,
)

from cenote.gateway.work.worker_slots import PROCESS, share_of
from cenote_security.options import parse_size

EPHEMERAL = 32768
CONTAINERS = list(containers())


@pytest.mark.parametrize(("owner", "container"), CONTAINERS, ids=[owner for owner, _ in CONTAINERS])
def test_containers_have_no_power(owner: str, container: dict[str, Any]) -> None:
    """No root, no capability, no privilege escalation, no writable file of the image."""
    pod = pod_templates()[owner]["spec"]["securityContext"]
    own = container["securityContext"]
    assert (True, 10001) == (pod["runAsNonRoot"], pod["runAsUser"])
    assert (False, True, ["ALL"]) == (
        own["allowPrivilegeEscalation"],
        own["readOnlyRootFilesystem"],
        own["capabilities"]["drop"],
    )
    assert "privileged" not in own


@pytest.mark.parametrize("owner", pod_templates())
def test_pods_share_nothing_with_the_machine(owner: str) -> None:
    """Neither its network, processes or files, nor access to the Kubernetes API."""
    spec = pod_templates()[owner]["spec"]
    assert set() == {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert [] == [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize("owner", ["head", "runtimes"])
def test_a_whole_proc_goes_with_users_of_the_pods_own(owner: str) -> None:
    """Kubernetes refuses procMount: Unmasked where the pod's root is the machine's."""
    spec = pod_templates()[owner]["spec"]
    assert spec["hostUsers"] is False
    assert ["Unmasked"] == [one["securityContext"]["procMount"] for one in spec["containers"]]


def test_only_the_gateway_is_offered() -> None:
    """One Service, inside the cluster, for the gateway's port; no port of a machine."""
    services = of_kind("Service")
    assert {"cenote"} == set(services)
    assert "ClusterIP" == services["cenote"]["spec"]["type"]
    assert (
        services["cenote"]["spec"]["selector"].items()
        <= pod_templates()["gateway"]["metadata"]["labels"].items()
    )
    assert [] == [port for _, one in CONTAINERS for port in one.get("ports", []) if "hostPort" in port]


def test_secrets_are_named_and_never_given() -> None:
    """Anything that sounds like one comes from a Secret that an operator creates."""
    given = [
        variable["name"]
        for _, container in CONTAINERS
        for variable in container.get("env", [])
        if re.search("TOKEN|KEY|PASSWORD|SECRET", variable["name"]) and "value" in variable
    ]
    assert [] == given
    assert [] == [found for found in objects() if found["kind"] == "Secret"]


def asked_of_secrets() -> set[tuple[str, str, bool]]:
    """Secret, key, whether a pod starts without it; as environment of containers."""
    references = [
        variable["valueFrom"]["secretKeyRef"]
        for _, container in CONTAINERS
        for variable in container.get("env", [])
        if "valueFrom" in variable
    ]
    return {(one["name"], one["key"], one.get("optional", False)) for one in references}


def test_there_is_a_store_by_default() -> None:
    """The gateway gets it from a Secret; a pod whose Secret is missing does not start, and says so."""
    (gateway,) = pod_templates()["gateway"]["spec"]["containers"]
    assert "--store=$(STORE_URL)" in gateway["args"]
    assert ("cenote-store", "url", False) in asked_of_secrets()


def test_whatever_writes_states_can_open_the_store() -> None:
    """Nodes and the gateway, with the same names; only the gateway has the database."""
    given = {
        owner: {each["name"] for each in container.get("env", []) if each["name"].startswith("AWS_")}
        for owner, container in CONTAINERS
    }
    assert {frozenset(given["gateway"])} == {frozenset(names) for names in given.values()}
    assert len(given["gateway"]) == 4
    assert ["gateway"] == [
        owner
        for owner, container in CONTAINERS
        if "CENOTE_DATABASE" in {each["name"] for each in container.get("env", [])}
    ]


def test_examples_of_secrets_have_what_is_asked_for_and_nothing_else() -> None:
    """By names of Secrets and keys; each value is a placeholder."""
    examples = {
        (secret["metadata"]["name"], key): value
        for secret in documents(SECRETS)
        for key, value in secret["stringData"].items()
    }
    assert examples.keys() == {(name, key) for name, key, _ in asked_of_secrets()}
    assert all("REPLACE" in value for value in examples.values())


def test_the_image_has_what_store_and_database_take() -> None:
    """Drivers for both: without them the platform does not start."""
    extras = re.search(r"^ARG EXTRAS=(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert extras is not None
    assert {"postgresql", "s3"} <= set(extras[1].split(","))


def test_the_gateways_memory_holds_what_it_works_on_at_once() -> None:
    """Sixteen teams and sixteen jobs, a process each, and the gateway itself."""
    (gateway,) = pod_templates()["gateway"]["spec"]["containers"]
    limit = parse_size(gateway["resources"]["limits"]["memory"] + "B")
    share = share_of(limit, tenants=4)
    assert share.at_once == 16
    assert 2 * share.at_once * PROCESS + 2**30 <= limit


def test_the_token_of_ray_is_the_same_on_both_sides() -> None:
    """The gateway presents the token that the cluster requires."""
    cluster = of_kind("RayCluster")["cenote"]["spec"]["authOptions"]
    (gateway,) = pod_templates()["gateway"]["spec"]["containers"]
    token = next(one for one in gateway["env"] if one["name"] == "RAY_AUTH_TOKEN")
    assert {"name": cluster["secretName"], "key": "auth_token"} == token["valueFrom"]["secretKeyRef"]


def test_ports_of_ray_are_below_those_of_runtimes() -> None:
    """So a policy can open the range that the kernel assigns and no port of Ray."""
    cluster = of_kind("RayCluster")["cenote"]["spec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        ports = {
            name: int(value) for name, value in group["rayStartParams"].items() if name.endswith("-port")
        }
        assert 5 == len(ports) == len(set(ports.values()))
        assert max(ports.values()) < EPHEMERAL


def test_the_version_of_ray_is_in_the_range_of_the_image() -> None:
    """KubeRay chooses its commands and probes by the declared version, the image contains the other."""
    version = of_kind("RayCluster")["cenote"]["spec"]["rayVersion"]
    low, high = re.findall(r"\d+\.\d+", re.search(r'ARG RAY="(.+)"', (DEPLOY / "Dockerfile").read_text())[1])
    numbers = [tuple(map(int, text.split(".")[:2])) for text in (low, version, high)]
    assert numbers[0] <= numbers[1] < numbers[2]


def test_a_drain_may_take_one_worker() -> None:
    """The budget is one less than the number of workers; the head's allows no eviction."""
    budgets = {name: one["spec"]["minAvailable"] for name, one in of_kind("PodDisruptionBudget").items()}
    (group,) = of_kind("RayCluster")["cenote"]["spec"]["workerGroupSpecs"]
    assert {"ray-head": 1, "ray-workers": group["replicas"] - 1} == budgets


def test_there_are_never_two_gateways() -> None:
    """The database and the audit log have one writer."""
    spec = of_kind("Deployment")["cenote-gateway"]["spec"]
    assert (1, "Recreate") == (spec["replicas"], spec["strategy"]["type"])
