"""The countable rules of the source tree: few files with one subject each, unique names, usual words.

`python scripts/source_figures.py` prints the figures. An exception is one of a list with its reason; a number here
may only be lowered.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

SMALL_ON_PURPOSE = {
    "one of several commands": ("cenote.cli.local", "cenote.cli.platform"),
    "one of several providers": ("cenote.models.litellm_model", "cenote.models.scripted"),
    "one of several levels": ("cenote_security.walls.levels",),
    "one of several databases": ("cenote.gateway.store.sqlite",),
    "what knows one library": ("cenote_security.values.libraries", "cenote_worker.jail.libraries"),
    "a name that users import": ("cenote.cave_agent", "cenote.plans", "cenote.environments"),
    "pure, with an importer that does I/O": (
        "cenote.agent.decide.patch",
        "cenote.models.sse",
        "cenote_security.walls.kernel.bpf",
        "cenote_worker.egress.connection_rate",
    ),
    "opens or makes what is hostile, apart from what does not": (
        "cenote.skills.injection_unsafe",
        "cenote_worker.jail.state.stale_keys_unsafe",
    ),
}
"""Modules under 120 lines with one importer, by prefix."""

OPTIONS = {
    **dict.fromkeys(
        ("hibernate_after", "cpus", "noexec", "runtime_timeout", "call_timeout", "check_first"), 6
    ),
    **dict.fromkeys(
        ("ray_address", "audit_keep", "model_endpoints", "team_environment", "metrics_tenants"), 6
    ),
    **dict.fromkeys(("shared_memory", "backoff"), 6),
    "cell_timeout": 10,
    "log_json": 8,
}
"""Options whose names are no other words: the modules that may name one."""

FRAGMENTS = 5
LEVELS = 19
LIBRARIES = 81
TWICE = 24
VAGUE = 17


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("source_figures", ROOT / "scripts" / "source_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclass
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(figures: ModuleType) -> Any:
    return figures.Sources()


def test_a_folder_is_taken_in_at_a_glance(figures: ModuleType, sources: Any) -> None:
    """At most 15 modules besides its `__init__`; a folder with more has several subjects."""
    assert {} == {folder: n for folder, n in sources.folders().items() if n > figures.FULL}


def test_a_small_module_has_several_importers(sources: Any) -> None:
    """Otherwise it is part of its importer, or of a kind that is listed above."""
    allowed = tuple(prefix for prefixes in SMALL_ON_PURPOSE.values() for prefix in prefixes)
    found = [name for name in sources.fragments() if not name.startswith(allowed)]
    assert len(found) <= FRAGMENTS, found


def test_a_class_has_a_name_of_its_own(sources: Any) -> None:
    """So that a search finds it. Names of other libraries in `cave_agent` and `rl` are excepted."""
    assert len(sources.twice()) <= TWICE, sources.twice()


def test_a_text_names_the_role(sources: Any) -> None:
    """A caller, an owner, a client: not `whoever`, `nobody`, `somebody`."""
    assert sources.vague() <= VAGUE


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_known_in_few_places(sources: Any, option: str) -> None:
    """Its definition, and where it has an effect; checks, flags, JSON, messages and documents follow from that."""
    assert len(sources.spread(option)) <= OPTIONS[option], sources.spread(option)


def test_a_level_is_known_to_the_walls(figures: ModuleType, sources: Any) -> None:
    assert len(sources.naming(figures.LEVELS, "walls")) <= LEVELS


def test_a_library_is_known_in_few_places(figures: ModuleType, sources: Any) -> None:
    """`libraries/` knows it; the number of other modules that do may only fall."""
    assert len(sources.naming(figures.LIBRARIES, "libraries")) <= LIBRARIES
