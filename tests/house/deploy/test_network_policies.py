"""Who reaches whom under the network policies, by the rules of Kubernetes, evaluated here."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

import pytest
from tests.house.deploy.manifests import KUBERNETES, Object, documents

GATEWAY = {"app.kubernetes.io/name": "cenote", "app.kubernetes.io/component": "gateway"}
HEAD = {"ray.io/cluster": "cenote", "ray.io/node-type": "head"}
WORKER = {"ray.io/cluster": "cenote", "ray.io/node-type": "worker"}
OURS = {"kubernetes.io/metadata.name": "cenote"}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A pod, or, with an address and no namespace, any other host: a machine, an external service."""

    labels: dict[str, str] = field(default_factory=dict)
    namespace: dict[str, str] | None = field(default_factory=lambda: OURS)
    address: str = ""

    @property
    def ours(self) -> bool:
        return self.namespace == OURS


def outside(address: str) -> Peer:
    return Peer(namespace=None, address=address)


SYSTEM = {"kubernetes.io/metadata.name": "kube-system"}
SERVICES = {"cenote/services": "allowed"}

PEERS = {
    "gateway": Peer(labels=GATEWAY),
    "head": Peer(labels=HEAD),
    "worker": Peer(labels=WORKER),
    "pod here": Peer(),
    "stranger": Peer(namespace={"kubernetes.io/metadata.name": "else"}),
    "impostor": Peer(labels=GATEWAY, namespace={"kubernetes.io/metadata.name": "else"}),
    "direct client": Peer(labels={"cenote/direct": "true"}, namespace={"cenote/clients": "allowed"}),
    "half a client": Peer(labels={"cenote/direct": "true"}, namespace={}),
    "core dns": Peer(labels={"k8s-app": "kube-dns"}, namespace=SYSTEM),
    "dns cache as pod": Peer(labels={"k8s-app": "node-local-dns"}, namespace=SYSTEM),
    "dns cache": outside("169.254.20.10"),
    "dns service": outside("10.96.0.10"),
    "openshift dns": Peer(
        labels={"dns.operator.openshift.io/daemonset-dns": "default"},
        namespace={"kubernetes.io/metadata.name": "openshift-dns"},
    ),
    "dns of a stranger": Peer(labels={"k8s-app": "kube-dns"}, namespace={}),
    "system pod": Peer(labels={"k8s-app": "metrics-server"}, namespace=SYSTEM),
    "database": Peer(labels={"cenote/service": "database"}, namespace=SERVICES),
    "store": Peer(labels={"cenote/service": "store"}, namespace=SERVICES),
    "store elsewhere": Peer(labels={"cenote/service": "store"}, namespace={}),
    "range for services": outside("192.0.2.7"),
    "model": outside("104.18.6.192"),
    "model by ipv6": outside("2606:4700::6812:6c0"),
    "metadata": outside("169.254.169.254"),
    "private": outside("10.1.2.3"),
    "private by ipv6": outside("fd00::1"),
    "public dns": outside("8.8.8.8"),
}

SHIPPED = ("network-policies.yaml", "services.yaml")
"""The policies that one command applies."""


def policies(*files: str) -> list[Object]:
    return [found for name in files for found in documents(KUBERNETES / name)]


def passes(rules: list[Object], source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """Both ends must allow it; hosts outside the namespace are under no policy of these."""
    return (not source.ours or _lets(rules, "Egress", source, target, port, protocol)) and (
        not target.ours or _lets(rules, "Ingress", target, source, port, protocol)
    )


def _lets(rules: list[Object], direction: str, subject: Peer, other: Peer, port: int, protocol: str) -> bool:
    applying = [
        rule["spec"]
        for rule in rules
        if direction in rule["spec"]["policyTypes"] and _selects(rule["spec"]["podSelector"], subject.labels)
    ]
    key, peers = direction.lower(), {"Ingress": "from", "Egress": "to"}[direction]
    return not applying or any(
        _is_peer(entry.get(peers), other) and _is_port(entry.get("ports"), port, protocol)
        for spec in applying
        for entry in spec.get(key, [])
    )


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        _fits(one, labels) for one in selector.get("matchExpressions", [])
    )


def _fits(expression: Object, labels: dict[str, str]) -> bool:
    assert expression["operator"] == "In", "the others are not worked out here"
    return labels.get(expression["key"]) in expression["values"]


def _is_peer(peers: list[Object] | None, other: Peer) -> bool:
    return peers is None or any(
        _is_in(peer["ipBlock"], other.address) if "ipBlock" in peer else _is_selected(peer, other)
        for peer in peers
    )


def _is_selected(peer: Object, other: Peer) -> bool:
    if other.namespace is None:
        return False  # selectors match no address
    there = (
        _selects(peer["namespaceSelector"], other.namespace) if "namespaceSelector" in peer else other.ours
    )
    return there and _selects(peer.get("podSelector", {}), other.labels)


def _is_in(block: Object, address: str) -> bool:
    """A pod may have any address here, so blocks apply only to peers with an address of their own."""
    if not address:
        return False
    found = ip_address(address)
    return found in ip_network(block["cidr"]) and not any(
        found in ip_network(one) for one in block.get("except", [])
    )


def _is_port(ports: list[Object] | None, port: int, protocol: str) -> bool:
    return ports is None or any(
        one["protocol"] == protocol and one["port"] <= port <= one.get("endPort", one["port"])
        for one in ports
    )


ALLOWED = [
    ("stranger", "gateway", 8470),
    ("gateway", "head", 10001),
    ("gateway", "head", 40000),
    ("gateway", "worker", 40000),
    ("head", "worker", 6380),
    ("worker", "head", 6379),
    ("worker", "worker", 10500),
    ("gateway", "model", 443),
    ("gateway", "model by ipv6", 443),
    ("gateway", "database", 5432),
    ("gateway", "range for services", 5432),
    *((pod, "store", port) for pod in ("gateway", "head", "worker") for port in (443, 9000)),
    *((pod, "range for services", 443) for pod in ("gateway", "worker")),
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
    *(("gateway", "model", port) for port in (22, 25, 80, 5432, 9000)),
    *(("gateway", away, port) for away in ("metadata", "private", "private by ipv6") for port in (80, 443)),
    *((pod, away, 443) for pod in ("head", "worker") for away in ("model", "metadata", "private")),
    *((pod, "database", 5432) for pod in ("head", "worker", "pod here")),
    ("gateway", "database", 22),
    ("gateway", "store", 5432),
    ("worker", "store elsewhere", 9000),
    ("worker", "range for services", 5432),
    *((pod, "public dns", 53) for pod in ("gateway", "worker")),
    ("worker", "dns of a stranger", 53),
    ("worker", "system pod", 53),
    ("worker", "core dns", 9153),
    ("worker", "dns cache", 80),
    ("worker", "metadata", 53),
]


@pytest.mark.sweep
@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
@pytest.mark.parametrize("pod", ["gateway", "head", "worker"])
@pytest.mark.parametrize(
    ("server", "port"),
    [
        ("core dns", 53),
        ("dns cache as pod", 53),
        ("dns cache", 53),
        ("dns service", 53),
        ("openshift dns", 5353),
    ],
)
def test_names_are_asked_of_whatever_dns_a_cluster_has(
    pod: str, server: str, port: int, protocol: str
) -> None:
    """CoreDNS, NodeLocal DNSCache in each of its forms, OpenShift's; by UDP, and by TCP for long answers."""
    assert passes(policies(*SHIPPED), PEERS[pod], PEERS[server], port, protocol)


@pytest.mark.parametrize(("source", "target", "port"), ALLOWED)
def test_what_the_platform_needs_passes(source: str, target: str, port: int) -> None:
    """Clients to the gateway, the gateway to runtimes and to Ray's client server, Ray's nodes to each other."""
    assert passes(policies(*SHIPPED), PEERS[source], PEERS[target], port)


@pytest.mark.sweep
@pytest.mark.parametrize(("source", "target", "port"), REFUSED)
def test_nothing_else_does(source: str, target: str, port: int) -> None:
    """No peer reaches Ray, its own ports are closed to the gateway too, and nodes do not call the gateway."""
    assert not passes(policies(*SHIPPED), PEERS[source], PEERS[target], port)


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
    """With the optional file, clients that are named by pod and namespace reach runtimes, but not Ray."""
    rules = policies(*SHIPPED, "optional/direct-clients.yaml")
    assert expected == passes(rules, PEERS[source], PEERS["worker"], port)


@pytest.mark.parametrize(
    ("away", "port", "expected"),
    [("model", 443, True), ("model", 80, False), ("metadata", 443, False), ("private", 443, False)],
)
def test_public_addresses_for_nodes_are_an_option(away: str, port: int, expected: bool) -> None:
    """With the optional file nodes reach them by HTTPS, but not the machines' own network."""
    rules = policies(*SHIPPED, "optional/egress.yaml")
    assert expected == passes(rules, PEERS["worker"], PEERS[away], port)
