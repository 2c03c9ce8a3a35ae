"""PyTorch's objects as descriptions, and its state that no name leads to.

A tensor is described by its shared storage and the part that it shows. It refers to its gradient, its hooks and
attributes; one that was computed with gradients also to its history: the graph that `backward` walks, down to the
parameters whose gradients it will change. State of the process: the shared generator, global settings, and global
hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Set
from types import ModuleType
from typing import Any, Final

from cenote_worker.jail.tracking.descriptions.graph import ATOMS, Handler, ObjectGraph
from cenote_worker.jail.tracking.process_state.modules import is_of_library
from cenote_worker.pickling.tensors_unsafe import is_used_up
from cenote_worker.process.memory_unsafe import memory_at
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

GENERATOR: Final = "torch.random"

_ASKING: Final = frozenset(("default_generator", "get_state", "set_state"))
"""Words in code that reads or sets the generator without drawing; besides those with `seed`. Drawing changes it."""

_TABLES: Final = ("torch.nn.modules.module", "torch.optim.optimizer")
"""Modules with hooks of all modules and all optimizers, in dictionaries."""

_modules = sys.modules


def asks_generator(libraries: Set[str], words: Set[str]) -> bool:
    """Whether a step may read or set the generator's state, judging by the libraries it reaches and its words."""
    spoken = any("seed" in word or "rng" in word or word in _ASKING for word in words)
    return GENERATOR in libraries or ("torch" in libraries and spoken)


def generator_state() -> object:
    torch: Any = _modules["torch"]
    state = torch.default_generator.get_state()
    return bytes(memory_at(state.data_ptr(), state.numel(), state))


def settings() -> object:
    """Settings that PyTorch shows; and how many functions and modes see each call."""
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
    """User objects in PyTorch: hooks of all modules and optimizers, and classes allowed in files."""
    found = list[object](
        getattr(_modules.get("torch._weights_only_unpickler"), "_marked_safe_globals_set", ())
    )
    for home in _TABLES:
        for key, table in vars(_modules.get(home, sys)).items():
            if key.startswith("_global_") and isinstance(table, dict):
                found += table.values()
    return [each for each in found if not _is_of_library(each)]


def _is_of_library(value: object) -> bool:
    """Whether the module that a class or function names as its own is an installed one."""
    file = getattr(_modules.get(getattr(value, "__module__", "")), "__file__", None)
    return type(file) is str and is_of_library(file)


_HISTORY: Final = "a tensor that knows how it was computed cannot be pickled"
_USED_UP: Final = ("used up",)
"""For a graph that leads nowhere any more."""

_SAVED: Final = "_saved_"
_LEAF: Final = "AccumulateGrad"


def handlers(torch: ModuleType) -> dict[type, Handler]:
    """Handlers for exact types of an imported PyTorch. Raises AttributeError for a version with other parts."""
    made = _Tensors(torch)
    found: dict[type, Handler] = dict.fromkeys((torch.Tensor, torch.nn.Parameter), made.tensor)
    found |= dict.fromkeys(
        (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo), _constant
    )
    found[torch.Size] = _constant
    found[torch.UntypedStorage] = made.storage
    found[torch.Generator] = made.generator
    return found


class _Tensors:
    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._plainly = torch._C.DisableTorchFunction
        self._saved: dict[type, tuple[str, ...]] = {}
        """By type of a graph's node: the attributes that show what it has saved."""

    def tensor(self, graph: ObjectGraph, value: Any) -> object:
        graph.packages.add("torch")
        graph.changeable(value)
        with self._plainly():  # without the user's hooks that see all calls
            if not self._is_plain(value):
                return graph.follow(value)
            history = value.grad_fn
            table = object.__getattribute__(value, "__dict__")
            grad = value.grad if history is None or value.retains_grad else None
            hooks = [hook for hook in (value._backward_hooks, value._post_accumulate_grad_hooks) if hook]
            return (
                type(value).__name__, value.requires_grad, value.retains_grad, value.is_inference(),
                self._content(graph, value), graph.tokens((grad, *hooks)),
                graph.inline(table) if table else None, self._history(graph, history),
            )  # fmt: skip

    def storage(self, graph: ObjectGraph, value: Any) -> object:
        graph.packages.add("torch")
        graph.changeable(value)
        if value.device.type != "cpu":
            return graph.follow(value)
        place = self._place(graph, value)
        return place, graph.memory(memory_at(value.data_ptr(), value.nbytes(), value), value.nbytes())

    def generator(self, graph: ObjectGraph, value: Any) -> object:
        graph.packages.add("torch")
        graph.changeable(value)
        shared = value is self._torch.default_generator
        if shared:
            graph.packages.add(GENERATOR)
        if value.device.type != "cpu":
            return graph.follow(value)
        state = value.get_state()
        return shared, bytes(memory_at(state.data_ptr(), state.numel(), state))

    def _is_plain(self, value: Any) -> bool:
        strided = value.layout is self._torch.strided and value.device.type == "cpu"
        return bool(strided and not value.is_quantized and not value.is_nested)

    def _content(self, graph: ObjectGraph, value: Any) -> object:
        storage = value.untyped_storage()
        place = self._place(graph, storage)
        size = value.numel() * value.element_size()
        if value.is_contiguous():
            data = graph.memory(memory_at(value.data_ptr(), size, value), size)
        else:  # more than the part shown; the layout is part of the description
            data = graph.memory(memory_at(storage.data_ptr(), storage.nbytes(), storage), storage.nbytes())
        lies = value.storage_offset(), tuple(value.shape), value.stride(), value.is_conj(), value.is_neg()
        return str(value.dtype), lies, place, data

    def _place(self, graph: ObjectGraph, storage: Any) -> object:
        """Records the owner of the memory. Memory that PyTorch has not allocated itself belongs to an array, or to an
        unknown object, so its holder may lead to everything that its creator had."""
        address = storage._cdata
        number = graph.place_at(address)
        graph.holds[address] = -2 - number
        if not storage.resizable():
            start = storage.data_ptr()
            graph.owned[address] = start, start + storage.nbytes()
            graph.shown.append((start, start + storage.nbytes()))
            graph.blind = True
        return number, storage.nbytes(), storage.resizable()

    def _history(self, graph: ObjectGraph, node: Any) -> object:
        """The graph of a tensor that was computed with gradients, node by node."""
        if node is None:
            return None
        if is_used_up(node):
            return _USED_UP
        graph.stay(_HISTORY)
        nodes, numbers, told = [node], {id(node): 0}, list[object]()
        for each in nodes:
            followed = list[object]()
            for other, index in each.next_functions:
                if other is not None and id(other) not in numbers:
                    numbers[id(other)] = len(nodes)
                    nodes.append(other)
                followed.append((numbers.get(id(other), -1), index))
            told.append((each.name(), followed, self._kept(graph, each)))
            graph.budget.spend(1)
            graph.budget.check()
        return told

    def _kept(self, graph: ObjectGraph, node: Any) -> object:
        """What a node of a graph holds besides the next nodes."""
        cls = type(node)
        if cls.__name__ == _LEAF:
            return graph.token(node.variable)
        if cls.__module__ != "builtins" or not cls.__name__.rstrip("0123456789").endswith("Backward"):
            graph.unknown(f"a {cls.__name__} cannot be looked into", quiet=True)
            graph.blind = True
            return graph.tokens((cls, vars(node))) if hasattr(node, "__dict__") else None
        if cls not in self._saved:
            self._saved[cls] = tuple(each for each in dir(cls) if each.startswith(_SAVED))
        return [(name, self._said(graph, node, name)) for name in self._saved[cls]]

    def _said(self, graph: ObjectGraph, node: Any, name: str) -> object:
        try:
            value = getattr(node, name)
        except RuntimeError as error:  # it has been used up, or its saved values were changed
            return ("gone", "freed" in str(error))
        return self._saved_value(graph, value)

    def _saved_value(self, graph: ObjectGraph, value: Any) -> object:
        if type(value) in ATOMS:
            return repr(value)
        if type(value) in (tuple, list):
            return [self._saved_value(graph, each) for each in value]
        if isinstance(value, self._torch.Tensor):
            return self._content(graph, value) if self._is_plain(value) else graph.follow(value)
        return repr(value) if type(value) in (self._torch.dtype, self._torch.device) else type(value).__name__


def _constant(_graph: ObjectGraph, value: object) -> object:
    return repr(value)
