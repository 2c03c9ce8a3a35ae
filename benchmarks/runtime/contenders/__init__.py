"""The contenders, each imported only in the process that measures it."""

from __future__ import annotations

from importlib import import_module

from benchmarks.runtime.contender import Contender

CONTENDERS: dict[str, str] = {
    "cenote": "benchmarks.runtime.contenders.cenote_runtime:CenoteContender",
    "cenote bare": "benchmarks.runtime.contenders.cenote_runtime:CenoteBareContender",
    "ipykernel": "benchmarks.runtime.contenders.ipykernel_client:IpykernelContender",
    "cave-agent kernel": "benchmarks.runtime.contenders.cave_kernel:CaveKernelContender",
    "cave-agent in-process": "benchmarks.runtime.contenders.cave_in_process:CaveInProcessContender",
    "smolagents local": "benchmarks.runtime.contenders.smolagents_local:SmolagentsContender",
    "plain exec": "benchmarks.runtime.contenders.plain_exec:PlainExecContender",
}
"""Name in the report -> location of its class. The first one is the reference."""


def load_contender(name: str) -> type[Contender]:
    """The class of a contender. Raises ImportError when its library is not installed."""
    module_name, _, class_name = CONTENDERS[name].partition(":")
    kind: type[Contender] = getattr(import_module(module_name), class_name)
    return kind
