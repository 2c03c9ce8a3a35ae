"""Who reaches whom under the network policies, by the rules of Kubernetes, worked out here."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.deploy.manifests import KUBERNETES, Object, documents

GATEWAY = {"app.kubernetes.io/name": "cenote", "app.kubernetes.io/component": "gateway"}
HEAD = {"ray.io/cluster": "cenote", "ray.io/node-type": "head"}
WORKER = {"ray.io/cluster": "cenote", "ray.io/node-type": "worker"}
OURS = {"kubernetes.io/metadata.name": "cenote"}


@dataclass(frozen=True, kw_only=True)
class Pod:
    labels: dict[str, str] = field(default_factory=dict)
    namespace: dict[str, str] = field(default_factory=lambda: OURS)

    @property
    def ours(self) -> bool:
        return self.namespace == OURS


PODS = {
    "gateway": Pod(labels=GATEWAY),
    "head": Pod(labels=HEAD),
    "worker": Pod(labels=WORKER),
    "pod here": Pod(),
    "stranger": Pod(namespace={"kubernetes.io/metadata.name": "else"}),
    "impostor": Pod(labels=GATEWAY, namespace={"kubernetes.io/metadata.name": "else"}),
    "direct client": Pod(labels={"cenote/direct": "true"}, namespace={"cenote/clients": "allowed"}),
    "half a client": Pod(labels={"cenote/direct": "true"}, namespace={}),
}


def policies(*files: str) -> list[Object]:
    return [found for name in files for found in documents(KUBERNETES / name)]


def passes(rules: list[Object], source: Pod, target: Pod, port: int) -> bool:
    """Both ends must let it through; a pod outside the namespace is under no policy of ours."""
    return (not source.ours or _lets(rules, "Egress", source, target, port)) and _lets(
        rules, "Ingress", target, source, port
    )


def _lets(rules: list[Object], direction: str, subject: Pod, other: Pod, port: int) -> bool:
    applying = [
        rule["spec"]
        for rule in rules
        if direction in rule["spec"]["policyTypes"] and _selects(rule["spec"]["podSelector"], subject.labels)
    ]
    key, peers = direction.lower(), {"Ingress": "from", "Egress": "to"}[direction]
    return not applying or any(
        _is_peer(entry.get(peers), other) and _is_port(entry.get("ports"), port)
        for spec in applying
        for entry in spec.get(key, [])
    )


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items()


def _is_peer(peers: list[Object] | None, pod: Pod) -> bool:
    return peers is None or any(
        "ipBlock" not in peer
        and (_selects(peer["namespaceSelector"], pod.namespace) if "namespaceSelector" in peer else pod.ours)
        and _selects(peer.get("podSelector", {}), pod.labels)
        for peer in peers
    )


def _is_port(ports: list[Object] | None, port: int) -> bool:
    return ports is None or any(
        one["protocol"] == "TCP" and one["port"] <= port <= one.get("endPort", one["port"]) for one in ports
    )


ALLOWED = [
    ("stranger", "gateway", 8470),
    ("gateway", "head", 10001),
    ("gateway", "head", 40000),
    ("gateway", "worker", 40000),
    ("head", "worker", 6380),
    ("worker", "head", 6379),
    ("worker", "worker", 10500),
]
REFUSED = [
    *(("stranger", "head", port) for port in (6379, 8265, 10001, 40000)),
    *(("impostor", "worker", port) for port in (6380, 6384, 40000)),
    *(("pod here", "head", port) for port in (6379, 10001, 40000)),
    *(("gateway", "head", port) for port in (6379, 6384, 8265)),
    *(("gateway", "worker", port) for port in (6380, 6381, 6384, 10500)),
    *(("direct client", "worker", port) for port in (6380, 40000)),
    ("stranger", "gateway", 22),
    ("worker", "gateway", 8470),
]


@pytest.mark.parametrize(("source", "target", "port"), ALLOWED)
def test_what_the_platform_needs_passes(source: str, target: str, port: int) -> None:
    """Clients to the gateway, the gateway to runtimes and to Ray's client server, Ray's nodes to each other."""
    assert passes(policies("network-policies.yaml"), PODS[source], PODS[target], port)


@pytest.mark.parametrize(("source", "target", "port"), REFUSED)
def test_nothing_else_does(source: str, target: str, port: int) -> None:
    """Ray is out of reach for everybody, its own ports for the gateway too, and nodes do not call the gateway."""
    assert not passes(policies("network-policies.yaml"), PODS[source], PODS[target], port)


@pytest.mark.parametrize(
    ("source", "port", "expected"),
    [
        ("direct client", 40000, True),
        ("direct client", 6380, False),
        ("half a client", 40000, False),
        ("stranger", 40000, False),
    ],
)
def test_direct_clients_are_an_option(source: str, port: int, expected: bool) -> None:
    """With the optional file, clients that are named by pod and namespace reach runtimes, and nothing of Ray's."""
    rules = policies("network-policies.yaml", "optional/direct-clients.yaml")
    assert expected == passes(rules, PODS[source], PODS["worker"], port)
