"""The contenders, each imported only in the process that measures it."""

from __future__ import annotations

from importlib import import_module

from benchmarks.state.keeper import StateKeeper

KEEPERS: dict[str, str] = {
    "cenote": "benchmarks.state.keepers.cenote_runtime:CenoteKeeper",
    "cenote durable": "benchmarks.state.keepers.cenote_runtime:CenoteDurableKeeper",
    "cenote by value": "benchmarks.state.keepers.cenote_runtime:CenoteByValueKeeper",
    "kishu": "benchmarks.state.keepers.kishu_kernel:KishuKeeper",
    "dill": "benchmarks.state.keepers.dumping_kernel:DillKeeper",
    "cloudpickle": "benchmarks.state.keepers.dumping_kernel:CloudpickleKeeper",
    "restart and re-run": "benchmarks.state.keepers.rerunning_kernel:RerunningKeeper",
}
"""Name in the report -> location of its class. The first one is the reference."""

KEEPING_EACH_CELL = tuple(name for name in KEEPERS if name != "cenote by value")
"""All except the one that differs from another only in waking."""

PEERS = tuple(name for name in KEEPERS if name not in ("cenote durable", "cenote by value"))
"""All except those that differ from another only in the cost of a cell, or of waking."""


def load_keeper(name: str) -> type[StateKeeper]:
    """The class of a contender. Raises ImportError when its library is not installed."""
    module_name, _, class_name = KEEPERS[name].partition(":")
    kind: type[StateKeeper] = getattr(import_module(module_name), class_name)
    return kind
