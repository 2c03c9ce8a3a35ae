"""The Helm chart, rendered by Helm's own engine for several sets of values, and checked by schema, without a cluster.

With its defaults it gives the objects of `deploy/kubernetes`, so neither can change without the other.
"""

from __future__ import annotations

import json
import shlex
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private.kuberay import autoscaling_config
from tests.house.deploy.manifests import KUBERNETES, Object, documents
from tests.house.deploy.test_kubernetes_objects import KUBERAY, VERSIONS, title
from tests.house.deploy.test_network_policies import PEERS, outside, passes

from cenote_worker.node.ray.cluster import PLACES

helm = pytest.importorskip(
    "helm_python", reason="Helm's engine is in the package helm-python-sdk, for x86-64 and arm64"
)

CHART = KUBERNETES.parent / "helm" / "cenote"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one-machine": {
        "database": {"secretName": ""},
        "store": {"kind": "claim", "claim": {"size": "50Gi", "className": "nfs"}},
        "ray": {"workers": {"replicas": 1, "minReplicas": 1, "maxReplicas": 1}},
        "podDisruptionBudgets": {"enabled": False},
    },
    "production": {
        "namespace": {"create": True},
        "image": {"digest": f"sha256:{'a' * 64}"},
        "database": {"required": True},
        "tls": {
            "certManager": {
                "enabled": True,
                "issuer": {"name": "company"},
                "dnsNames": ["cenote.example.com"],
            }
        },
        "monitoring": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
        },
        "gateway": {
            "priorityClassName": "platform",
            "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
            "extraArgs": ["--audit-days=90", "--log-json"],
        },
        "ray": {
            "priorityClassName": "platform",
            "workers": {"replicas": 3, "minReplicas": 3, "maxReplicas": 10},
            "autoscaling": {"enabled": True, "runtimesPerMachine": 12, "idleTimeoutSeconds": 120},
        },
        "podDisruptionBudgets": {"minWorkers": 2},
    },
    "public-models": {
        "networkPolicies": {
            "nodesPublicHttps": True,
            "servicesCidrs": ["203.0.113.0/24", "2001:db8::/64"],
            "dnsCidrs": ["10.43.0.10/32"],
        }
    },
    "own-policies": {
        "networkPolicies": {"enabled": False},
        "gateway": {"storage": {"accessModes": ["ReadWriteOnce"]}},
    },
}

OTHERS = {
    "Certificate": {
        "apiVersion": "cert-manager.io/v1",
        "spec": {"secretName", "dnsNames", "issuerRef", "privateKey"},
    },
    "ServiceMonitor": {
        "apiVersion": "monitoring.coreos.com/v1",
        "spec": {"selector", "endpoints", "jobLabel"},
    },
    "PrometheusRule": {"apiVersion": "monitoring.coreos.com/v1", "spec": {"groups"}},
}
"""Custom resources without a schema here: their fields by the documents of their projects."""


@cache
def rendered(values: str) -> tuple[Object, ...]:
    return objects_of(VALUES[values])


def objects_of(values: dict[str, Any]) -> tuple[Object, ...]:
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name="cenote", namespace="cenote")
    return tuple(one for text in files.values() for one in yaml.safe_load_all(text) if one)


def named(found: tuple[Object, ...]) -> dict[str, Object]:
    return {title(one): one for one in found}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", VALUES)
def test_objects_fit_their_schemas(values: str, version: str) -> None:
    """Those of Kubernetes, with no unknown field, those of KubeRay, and the pods in them."""
    for one in rendered(values):
        if one["kind"] == "RayCluster":
            jsonschema.validate(one, KUBERAY)
            groups = [one["spec"]["headGroupSpec"], *one["spec"]["workerGroupSpecs"]]
            if options := one["spec"].get("autoscalerOptions"):
                groups = [with_autoscaler(groups[0], options), *groups[1:]]
            for group in groups:
                pod = {
                    "apiVersion": "v1",
                    "kind": "PodTemplate",
                    "metadata": {"name": "of-a-group"},
                    "template": group["template"],
                }
                kubernetes_validate.validate(pod, version, strict=True)
        elif one["kind"] in OTHERS:
            assert one["apiVersion"] == OTHERS[one["kind"]]["apiVersion"]
            assert set(one["spec"]) <= set(OTHERS[one["kind"]]["spec"])
        else:
            kubernetes_validate.validate(one, version, strict=True)


def with_autoscaler(head: Object, options: Object) -> Object:
    """The head as KubeRay completes it: the options are fields of a container beside Ray's."""
    fields = {name: value for name, value in options.items() if name != "idleTimeoutSeconds"}
    found = deepcopy(head)
    found["template"]["spec"]["containers"].append({"name": "autoscaler", **fields})
    return found


@pytest.mark.parametrize("values", VALUES)
def test_all_is_in_the_namespace_of_the_release(values: str) -> None:
    found = rendered(values)
    assert len(found) == len(named(found))
    assert {"cenote"} == {one["metadata"].get("namespace", "cenote") for one in found}


def test_the_defaults_are_the_plain_manifests() -> None:
    """But for the image's name, which kustomize fills in, and the namespace, which Helm makes."""
    (listed,) = documents(KUBERNETES / "kustomization.yaml")
    image = f"{listed['images'][0]['newName']}:{listed['images'][0]['newTag']}"
    plain = [one for name in listed["resources"] for one in documents(KUBERNETES / name)]
    text = json.dumps([one for one in plain if one["kind"] != "Namespace"]).replace(
        '"image": "cenote"', f'"image": "{image}"'
    )
    assert named(tuple(json.loads(text))) == named(rendered("defaults"))


def test_optional_parts_are_those_of_the_plain_manifests() -> None:
    (plain,) = documents(KUBERNETES / "optional" / "egress.yaml")
    assert plain == named(rendered("public-models"))["NetworkPolicy-public-https"]
    assert "NetworkPolicy-public-https" not in named(rendered("defaults"))
    (namespace,) = documents(KUBERNETES / "namespace.yaml")
    assert namespace == named(rendered("production"))["Namespace-cenote"]


def container(values: str) -> Object:
    deployment = named(rendered(values))["Deployment-cenote-gateway"]
    found: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def test_a_volume_can_be_the_store() -> None:
    """It is mounted by the gateway and all nodes, at the path that `--store` names; no credentials are asked for."""
    found = named(rendered("one-machine"))
    pods = [
        found["Deployment-cenote-gateway"]["spec"]["template"]["spec"],
        *(
            group["template"]["spec"]
            for group in (
                found["RayCluster-cenote"]["spec"]["headGroupSpec"],
                *found["RayCluster-cenote"]["spec"]["workerGroupSpecs"],
            )
        ),
    ]
    assert len(pods) == 3
    for pod in pods:
        (one,) = pod["containers"]
        assert {"name": "store", "mountPath": "/var/lib/cenote-store"} in one["volumeMounts"]
        assert {"name": "store", "persistentVolumeClaim": {"claimName": "cenote-store"}} in pod["volumes"]
        assert not any("AWS" in variable["name"] for variable in one.get("env", ()))
    assert "--store=/var/lib/cenote-store" in container("one-machine")["args"]
    assert ["ReadWriteMany"] == found["PersistentVolumeClaim-cenote-store"]["spec"]["accessModes"]


def test_a_database_can_be_left_out_or_waited_for() -> None:
    names = [one["name"] for one in container("one-machine")["env"]]
    assert "CENOTE_DATABASE" not in names
    (asked,) = (one for one in container("production")["env"] if one["name"] == "CENOTE_DATABASE")
    assert asked["valueFrom"]["secretKeyRef"]["optional"] is False


def test_the_autoscaler_adds_machines_for_what_the_gateway_asks() -> None:
    """As Ray's own autoscaler reads the cluster: each machine has places of the resource that the gateway asks for,
    and the head, which it never removes, has none.
    """
    cluster = named(rendered("production"))["RayCluster-cenote"]
    assert cluster["spec"]["enableInTreeAutoscaling"] is True
    read = autoscaling_config._derive_autoscaling_config_from_ray_cr(deepcopy(cluster))
    machine = read["available_node_types"]["runtimes"]
    assert (12, 3, 10) == (machine["resources"][PLACES], machine["min_workers"], machine["max_workers"])
    assert PLACES not in read["available_node_types"][read["head_node_type"]]["resources"]
    assert 2.0 == read["idle_timeout_minutes"]
    assert {"--wait-for-room=300", "--release-idle=600"} <= set(container("production")["args"])
    command = " ".join(f"--{name}={value}" for name, value in group(cluster)["rayStartParams"].items())
    assert '--resources={"cenote": 12}' in shlex.split(command)


def test_without_autoscaling_machines_take_any_number() -> None:
    cluster = named(rendered("defaults"))["RayCluster-cenote"]
    assert cluster["spec"].keys().isdisjoint({"enableInTreeAutoscaling", "autoscalerOptions"})
    assert "resources" not in group(cluster)["rayStartParams"]
    assert not any(
        one.startswith(("--wait-for-room", "--release-idle")) for one in container("defaults")["args"]
    )


def group(cluster: Object) -> Object:
    (found,) = cluster["spec"]["workerGroupSpecs"]
    return dict(found)


def test_only_the_autoscaler_has_a_token_of_kubernetes() -> None:
    """Ray's containers have none, and only the head may connect to the API."""
    found = named(rendered("production"))
    spec = found["RayCluster-cenote"]["spec"]
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    (token,) = (one for one in spec["autoscalerOptions"]["volumeMounts"] if one["mountPath"] == place)
    head, worker = (
        spec["headGroupSpec"]["template"]["spec"],
        group(found["RayCluster-cenote"])["template"]["spec"],
    )
    (volume,) = (one for one in head["volumes"] if one["name"] == token["name"])
    files = [source.get("serviceAccountToken", {}).get("path") for source in volume["projected"]["sources"]]
    assert "token" in files
    for pod in (head, worker):
        assert pod["automountServiceAccountToken"] is False
        assert not any(token["name"] == one["name"] for one in pod["containers"][0]["volumeMounts"])
    assert not any(token["name"] == one["name"] for one in worker["volumes"])
    policies = [one for one in found.values() if one["kind"] == "NetworkPolicy"]
    api = outside("10.96.0.1")
    assert {"head"} == {
        name for name, peer in PEERS.items() if peer.ours and passes(policies, peer, api, 443)
    }
    plain = [one for one in rendered("defaults") if one["kind"] == "NetworkPolicy"]
    assert not any(passes(plain, peer, api, 443) for peer in PEERS.values() if peer.ours)


def test_prometheus_finds_the_gateway_by_the_name_in_its_certificate() -> None:
    """Its port is open to Prometheus' namespace, and the certificate has the name that is scraped."""
    found = named(rendered("production"))
    (endpoint,) = found["ServiceMonitor-cenote"]["spec"]["endpoints"]
    assert "cenote.cenote.svc" in found["Certificate-cenote-gateway"]["spec"]["dnsNames"]
    assert "cenote.cenote.svc" == endpoint["tlsConfig"]["serverName"]
    assert ["cenote.cenote.svc:8480"] == [one["replacement"] for one in endpoint["relabelings"]]
    ports = {port["name"]: port["port"] for port in found["Service-cenote"]["spec"]["ports"]}
    assert {"grpc": 8470, "http": 8480} == ports
    assert found["ServiceMonitor-cenote"]["spec"]["selector"]["matchLabels"].items() <= (
        found["Service-cenote"]["metadata"]["labels"].items()
    )
    opened = found["NetworkPolicy-gateway"]["spec"]["ingress"][-1]
    assert [8480] == [port["port"] for port in opened["ports"]]
    assert {"kubernetes.io/metadata.name": "monitoring"} == opened["from"][0]["namespaceSelector"][
        "matchLabels"
    ]


def test_rules_and_dashboard_are_the_files_beside() -> None:
    found = named(rendered("production"))
    rules = yaml.safe_load((KUBERNETES.parent / "monitoring" / "alerts.yaml").read_text())
    assert rules == found["PrometheusRule-cenote"]["spec"]
    dashboard = found["ConfigMap-cenote-dashboard"]["data"]["cenote.json"]
    assert (KUBERNETES.parent / "monitoring" / "dashboard.json").read_text() == dashboard


@pytest.mark.parametrize(
    ("values", "named_in_error"),
    [
        ({"gateways": {}}, "gateways"),
        ({"store": {"kind": "s3"}}, "kind"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"ray": {"workers": {"replicas": "2"}}}, "replicas"),
        ({"ray": {"autoscaling": {"waitForRoomSeconds": 601}}}, "waitForRoomSeconds"),
        ({"networkPolicies": {"servicesCidrs": ["example.com"]}}, "servicesCidrs"),
        ({"tls": {"certManager": {"enabled": True}}}, "name an issuer"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], named_in_error: str) -> None:
    """By Helm itself, from the chart's schema, before anything is applied."""
    with pytest.raises(Exception, match=named_in_error):
        objects_of(values)


def test_the_schema_knows_every_value() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(defaults, SCHEMA)

    def paths(value: Any, schema: Any, place: str = "") -> list[str]:
        if not isinstance(value, dict) or "properties" not in schema:
            return []
        missing = [f"{place}.{name}" for name in set(schema["properties"]) ^ set(value) if name != "global"]
        return missing + [
            one for name in value for one in paths(value[name], schema["properties"][name], f"{place}.{name}")
        ]

    assert [] == paths(defaults, SCHEMA)


def test_the_version_is_that_of_the_package() -> None:
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    (chart,) = documents(CHART / "Chart.yaml")
    assert f'version = "{chart["version"]}"' in project
    assert (
        chart["version"]
        == chart["appVersion"]
        == yaml.safe_load((CHART / "values.yaml").read_text())["image"]["tag"]
    )
