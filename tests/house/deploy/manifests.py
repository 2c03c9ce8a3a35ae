"""The files under deploy/, parsed, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SECRETS = KUBERNETES / "examples" / "secrets.yaml"
"""To be copied and filled in; nothing applies it."""

Object = dict[str, Any]


def documents(path: Path) -> list[Object]:
    """All documents of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


@cache
def objects() -> list[Object]:
    """Every object of Kubernetes, the optional ones included, the list of files and the examples not."""
    apart = {SECRETS, KUBERNETES / "kustomization.yaml"}
    files = [path for path in sorted(KUBERNETES.rglob("*.yaml")) if path not in apart]
    return [found for path in files for found in documents(path)]


def of_kind(kind: str) -> dict[str, Object]:
    """Objects of a kind by name."""
    return {found["metadata"]["name"]: found for found in objects() if found["kind"] == kind}


def pod_templates() -> dict[str, Object]:
    """Every pod template, by the object that creates pods from it."""
    cluster = of_kind("RayCluster")["cenote"]["spec"]
    return {
        "head": cluster["headGroupSpec"]["template"],
        **{group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]},
        "gateway": of_kind("Deployment")["cenote-gateway"]["spec"]["template"],
    }


def containers() -> Iterator[tuple[str, Object]]:
    for owner, template in pod_templates().items():
        for container in template["spec"]["containers"]:
            yield owner, container
