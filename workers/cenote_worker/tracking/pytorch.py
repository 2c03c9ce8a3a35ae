"""State of PyTorch that no name leads to: the generator that all share, what holds for all code, whom it calls."""

from __future__ import annotations

import sys
from collections.abc import Set
from typing import Any, Final

from cenote_worker.memory_unsafe import memory_at
from cenote_worker.pristine import BUILTINS
from cenote_worker.tracking.own_modules import is_of_library

__builtins__ = BUILTINS

GENERATOR: Final = "torch.random"

_ASKING: Final = frozenset(("default_generator", "get_state", "set_state"))
"""Words of who asks the generator for something without drawing; with those of seeds. Who draws has changed it."""

_TABLES: Final = ("torch.nn.modules.module", "torch.optim.optimizer")
"""Modules with hooks of all modules and all optimizers, in dictionaries of theirs."""

_modules = sys.modules


def asks_generator(libraries: Set[str], words: Set[str]) -> bool:
    """Whether a step may ask for the generator's state or set it: by the libraries it reaches and its words."""
    spoken = any("seed" in word or "rng" in word or word in _ASKING for word in words)
    return GENERATOR in libraries or ("torch" in libraries and spoken)


def generator_state() -> object:
    torch: Any = _modules["torch"]
    state = torch.default_generator.get_state()
    return bytes(memory_at(state.data_ptr(), state.numel(), state))


def settings() -> object:
    """As far as PyTorch says; and how many are told of each call."""
    torch: Any = _modules["torch"]
    told = [
        torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(), torch.get_num_threads(),
        torch.is_anomaly_enabled(), torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"), torch.is_warn_always_enabled(), torch.backends.mkldnn.enabled,
        torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
        torch._tensor_str.PRINT_OPTS,
    ]  # fmt: skip
    return repr(told)


def hooks() -> list[object]:
    """What it has of the user's: hooks of all modules and optimizers, and classes that files may have."""
    found = list[object](
        getattr(_modules.get("torch._weights_only_unpickler"), "_marked_safe_globals_set", ())
    )
    for home in _TABLES:
        for key, table in vars(_modules.get(home, sys)).items():
            if key.startswith("_global_") and isinstance(table, dict):
                found += table.values()
    return [each for each in found if not _is_of_library(each)]


def _is_of_library(value: object) -> bool:
    """Of a class or a function: whether the module that it says it is of is an installed one."""
    file = getattr(_modules.get(getattr(value, "__module__", "")), "__file__", None)
    return type(file) is str and is_of_library(file)
