"""Cost of imports: users pay it at each start of a script, a zygote before its first jail."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "asttokens",
    "cryptography",
    "grpc",
    "httpx",
    "litellm",
    "matplotlib",
    "numpy",
    "openai",
    "pandas",
    "pyarrow",
    "pydantic",
    "ray",
    "sqlalchemy",
    "tiktoken",
    "yaml",
}
PUBLIC = [
    f"cenote{name}"
    for name in (
        "",
        ".agent",
        ".cli.main",
        ".errors",
        ".harness",
        ".models",
        ".runtime",
        ".security",
        ".skills",
        ".team",
    )
]
JAILED = ["cenote_worker.jail.worker", "cenote_worker.zygote.main", "cenote_security.walls.probe"]


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def loaded(module: str) -> set[str]:
    return set(
        run(f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})").split()
    )


def test_import_cenote_takes_under_150_milliseconds() -> None:
    """The best of five starts, in CPU time, so that a busy machine causes no failure."""
    code = "import time; start = time.process_time(); import cenote; print(time.process_time() - start)"
    assert min(float(run(code)) for _ in range(5)) < 0.150


@pytest.mark.sweep
@pytest.mark.parametrize("module", PUBLIC)
def test_heavy_libraries_load_on_first_use(module: str) -> None:
    """Importing a public package loads no heavy library."""
    assert set() == loaded(module) & HEAVY


@pytest.mark.parametrize("module", JAILED)
def test_jailed_code_loads_neither_heavy_libraries_nor_the_platform(module: str) -> None:
    """Every zygote pays for each import, and hostile code can reach the imported modules."""
    assert set() == loaded(module) & (HEAVY | {"cenote"})


@pytest.mark.slow
@pytest.mark.parametrize("module", ["cenote_worker.node.ray.agent", "cenote_worker.node.ray.host"])
def test_processes_of_a_cluster_load_what_each_of_them_needs(module: str) -> None:
    """A node has many; without TLS none of them loads certificate code."""
    assert {"grpc"} == (loaded(module) - loaded("ray")) & (HEAVY | {"cenote"})


def test_a_gateway_loads_ray_after_its_cluster_has_a_token() -> None:
    """Ray looks for tokens as it is loaded, and would be refused by its own cluster later."""
    assert "ray" not in loaded("cenote.gateway.process.daemon")


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "cenote.runtime",
        "cenote.gateway.process.watcher",
        "cenote.cli.main",
        "cenote.connection",
        "cenote.jobs",
    ],
)
def test_who_runs_no_jail_does_not_load_what_does(module: str) -> None:
    """A watcher runs for months, and most commands only query a platform: neither has its own runtime."""
    found = run(
        f"import sys, {module}\nif 'cli' in {module!r}: {module}.build_parser()\nprint(*sys.modules)"
    ).split()
    assert set() == {"cenote.runtime.core.runtime_core", "cenote_worker.runtime.runtime"} & set(found)
