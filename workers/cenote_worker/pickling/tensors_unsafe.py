"""Pickles PyTorch's tensors and optimizers, on both sides of the wall.

PyTorch itself stores a tensor without its gradient, tensors that share memory as separate ones, and an optimizer
without the hooks that were set on it. It also writes memory into the stream; here memory lies beside it.
"""

from __future__ import annotations

import copyreg
import importlib
import pickle
import sys
import types
from typing import Any, Final

from cenote_worker.process.memory_unsafe import memory_at
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_WRAPPED: Final = "_wrapped_by_lr_sched"
_USED_UP: Final = "used up"
_RESULT: Final = "UsedUp"
_SECOND_TIME: Final = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Specify retain_graph=True if you need to backward through the graph a second time or if you need "
    "to access saved tensors after calling backward."
)
"""PyTorch's error text, which programs may look for."""

_modules = sys.modules


class TensorNotKeptError(TypeError):
    """The tensor would come back as something else; the text says as what."""


def reduced_tensor(value: Any, *, whole: bool = True) -> tuple[Any, ...] | None:
    """How to pickle a plain tensor in memory, a parameter, its storage, or an optimizer, as `reducer_override` gives
    it; None for any other object.

    whole: raise TensorNotKeptError for one that has a computation graph or hooks, which cannot be stored. Otherwise
    it is described without them.
    """
    torch: Any = _modules.get("torch")
    if torch is None or not hasattr(torch, "UntypedStorage"):  # half imported
        return None
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        with torch._C.DisableTorchFunction():
            return _tensor(torch, value, whole=whole)
    if kind is torch.UntypedStorage and value.device.type == "cpu" and value.resizable():
        return remade_storage, (pickle.PickleBuffer(memory_at(value.data_ptr(), value.nbytes(), value)),)
    if value is torch.default_generator:
        return shared_generator, ()
    optimizer = getattr(_modules.get("torch.optim"), "Optimizer", None)
    if optimizer is not None and isinstance(value, optimizer) and kind.__getstate__ is optimizer.__getstate__:
        return copyreg.__newobj__, (kind,), _attributes(value), None, None, fill_optimizer  # type: ignore[attr-defined]
    return None


def remade_storage(data: Any) -> Any:
    """A storage with its own memory, since PyTorch cannot resize one in borrowed memory."""
    storage = importlib.import_module("torch").UntypedStorage(len(memoryview(data).cast("B")))
    if storage.nbytes():
        memory_at(storage.data_ptr(), storage.nbytes(), storage)[:] = memoryview(data).cast("B")
    return storage


def remade_tensor(kind: str, storage: Any, dtype: Any, lies: tuple[Any, ...], requires: bool) -> Any:
    """lies: offset, shape and strides in the storage, in items, and whether its values are conjugated or negated."""
    torch: Any = importlib.import_module("torch")
    offset, shape, strides, conjugated, negated = lies
    with torch.no_grad(), torch._C.DisableTorchFunction():
        value = torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, shape, strides)
        if conjugated:
            torch._C._set_conj(value, True)
        if negated:
            torch._C._set_neg(value, True)
    if kind == "Parameter":
        return torch.nn.Parameter(value, requires_grad=requires)
    if kind == _USED_UP:
        return _result(torch).apply(value.requires_grad_())
    return value.requires_grad_() if requires else value


def fill_tensor(value: Any, state: tuple[Any, dict[str, object] | None]) -> None:
    grad, attributes = state
    if grad is not None:
        value.grad = grad
    if attributes:
        vars(value).update(attributes)


def fill_optimizer(value: Any, attributes: dict[str, object]) -> None:
    """Sets all attributes, unlike PyTorch, which only knows some of them."""
    for key, attribute in attributes.items():
        vars(value)[key] = _wrapped_step(value) if key == "step" and attribute == _WRAPPED else attribute
    value._patch_step_function()


def _wrapped_step(optimizer: Any) -> Any:
    """The wrapper of `step` that each schedule makes for its optimizer, by a nested function of PyTorch."""
    schedules: Any = importlib.import_module("torch.optim.lr_scheduler")
    waiting = [schedules.LRScheduler.__init__.__code__]
    for code in waiting:
        if code.co_name == "wrap_step" and code.co_freevars == ("self",):
            schedule = types.CellType(types.SimpleNamespace(optimizer=optimizer))
            return types.FunctionType(code, vars(schedules), None, None, (schedule,))(optimizer.step)
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    raise LookupError("this PyTorch has other schedules than the one that stored the optimizer")


def shared_generator() -> Any:
    return importlib.import_module("torch").default_generator


def _tensor(torch: Any, value: Any, *, whole: bool) -> tuple[Any, ...] | None:
    if value.layout is not torch.strided or value.device.type != "cpu":
        return None
    if (
        value.is_quantized
        or value.is_nested
        or value.is_inference()
        or torch._C._functorch.is_functorch_wrapped_tensor(value)
    ):
        return None
    used_up = whole and value.grad_fn is not None
    if used_up and not is_used_up(value.grad_fn):
        raise TensorNotKeptError("a tensor that knows how it was computed would come back without that")
    if whole and (value._backward_hooks or value._post_accumulate_grad_hooks):
        raise TensorNotKeptError("a tensor with hooks would come back without them")
    storage = value.untyped_storage()
    if not storage.resizable():  # borrowed memory, of which PyTorch makes a copy
        if whole:
            raise TensorNotKeptError("a tensor over an array's memory would come back as a copy")
        return None
    lies = value.storage_offset(), tuple(value.shape), value.stride(), value.is_conj(), value.is_neg()
    kind = _USED_UP if used_up else type(value).__name__
    made = kind, storage, value.dtype, lies, value.requires_grad
    attributes = object.__getattribute__(value, "__dict__") or None
    grad = value.grad if value.grad_fn is None else None
    if grad is None and attributes is None:
        return remade_tensor, made
    return remade_tensor, made, (grad, attributes), None, None, fill_tensor


def is_used_up(node: Any) -> bool:
    """Whether `backward` has gone through a graph, so that another call would only raise an error: every path from
    here to a gradient that it would change leads through freed nodes."""
    waiting, seen, gone = [node], {node}, False
    while waiting:
        each = waiting.pop()
        cls = type(each)
        if cls.__name__ == f"{_RESULT}Backward" or any(
            name.startswith("_saved_") and _is_gone(each, name) for name in dir(cls)
        ):
            gone = True
            continue
        if not each.next_functions:  # a gradient would be changed here
            return False
        followed = [other for other, _ in each.next_functions if other is not None and other not in seen]
        seen.update(followed)
        waiting += followed
    return gone


def _is_gone(node: Any, name: str) -> bool:
    try:
        getattr(node, name)
    except RuntimeError as error:
        return "freed" in str(error)
    return False


def _result(torch: Any) -> Any:
    """A function whose result is a computed tensor through which `backward` has gone."""

    class UsedUp(torch.autograd.Function):  # type: ignore[misc]  # known by this name, see _RESULT
        @staticmethod
        def forward(_context: Any, value: Any) -> Any:
            return value.view_as(value)

        @staticmethod
        def backward(_context: Any, _gradient: Any) -> Any:
            raise RuntimeError(_SECOND_TIME)

    return UsedUp


def _attributes(optimizer: Any) -> dict[str, object]:
    """The attributes without the wrapper that a schedule puts around `step` to check call order: it is made again."""
    found = dict(vars(optimizer))
    if hasattr(found.get("step"), _WRAPPED):
        found["step"] = _WRAPPED
    return found
