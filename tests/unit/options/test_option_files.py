"""An option is defined once and read where it takes effect: few source files name it, and no more may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cenote.gateway.process.options import PlatformOptions
from cenote.team.budget import Budget
from cenote_security.options import Options, definitions
from cenote_security.policy import SandboxPolicy
from cenote_worker.checkpoints.retention import Retention

ROOT = Path(__file__).resolve().parents[3]
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for folder in ("platform", "workers", "security", "protos")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".proto") and not path.stem.endswith(("_pb2", "_pb2_grpc"))
    if path.parent.name != "adapters"  # they translate the words of other frameworks
}
WORDS = {path: {*re.findall(r"\w+", text)} for path, text in SOURCES.items()}
ASKED = {
    path: {*re.findall(r"\b_?(?:policy|sandbox|allowance)\.(\w+)", text)} for path, text in SOURCES.items()
}
"""Names under which a policy is used."""

MOST = 6

# Names that are only options: each mention counts, in comments too.
OWN_NAMES = {
    "cpus", "noexec", "hibernate_after", "call_timeout", "runtime_timeout", "shared_memory", "audit_keep",
    "ray_address", "without_ray",
    "model_endpoints", "team_environment",
}  # fmt: skip
# More files than that, for now: the number may only fall.
CEILINGS = {"cell_timeout": 11}
READ = {"memory": 21, "disk": 10, "output": 7, "mounts": 8, "processes": 7, "network": 7, "environment": 10}


def files_with(*names: str, among: dict[Path, set[str]]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path, found in among.items() if not found.isdisjoint(names)]


@pytest.mark.parametrize("name", sorted(OWN_NAMES | CEILINGS.keys()))
def test_an_option_stands_in_few_files(name: str) -> None:
    """Identified by its name, as a whole word."""
    kinds: list[type[Options]] = [SandboxPolicy, Retention, PlatformOptions, Budget]
    assert name in {known.name for kind in kinds for known in definitions(kind)}
    found = files_with(name, among=WORDS)
    assert len(found) <= CEILINGS.get(name, MOST), found


@pytest.mark.parametrize("name", [known.name for known in definitions(SandboxPolicy)])
def test_a_policy_s_option_is_read_in_few_files(name: str) -> None:
    """Names that are common words too are counted where they are read from a policy."""
    found = files_with(name, f"{name}_bytes", among=ASKED)
    assert len(found) <= READ.get(name, MOST), found
