"""PyTorch's tensors and optimizers on their way through a pickle, on both sides of the wall.

PyTorch itself stores a tensor without its gradient, two that show the same memory as two that do not, and an
optimizer without the hooks that were set on it. Its memory would go into the stream, too; here it lies beside it.
"""

from __future__ import annotations

import copyreg
import importlib
import pickle
import sys
from typing import Any, Final

from cenote_worker.memory_unsafe import memory_at
from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_OF_SCHEDULES: Final = "torch.optim.lr_scheduler"
_modules = sys.modules


class TensorNotKeptError(TypeError):
    """It would come back as something else; the text says as what."""


def reduced_tensor(value: Any, *, whole: bool = True) -> tuple[Any, ...] | None:
    """How to pickle a plain tensor in memory, a parameter, its storage, or an optimizer, as `reducer_override` gives
    it; None for any other object.

    whole: raise TensorNotKeptError for one that knows how it was computed, or has hooks, which cannot be stored.
    Otherwise it is told as what it is by itself.
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
    """Memory of its own, since PyTorch would not let what lies in somebody else's be resized."""
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
    return value.requires_grad_() if requires else value


def fill_tensor(value: Any, state: tuple[Any, dict[str, object] | None]) -> None:
    grad, attributes = state
    if grad is not None:
        value.grad = grad
    if attributes:
        vars(value).update(attributes)


def fill_optimizer(value: Any, attributes: dict[str, object]) -> None:
    """Not as PyTorch does, which knows of some of the attributes only."""
    vars(value).update(attributes)
    value._patch_step_function()


def shared_generator() -> Any:
    return importlib.import_module("torch").default_generator


def _tensor(torch: Any, value: Any, *, whole: bool) -> tuple[Any, ...] | None:
    if value.layout is not torch.strided or value.device.type != "cpu":
        return None
    if value.is_quantized or value.is_nested or value.is_inference() or torch._C._functorch.is_functorch_wrapped_tensor(value):
        return None
    if whole and value.grad_fn is not None:
        raise TensorNotKeptError("a tensor that knows how it was computed would come back without that")
    if whole and (value._backward_hooks or value._post_accumulate_grad_hooks):
        raise TensorNotKeptError("a tensor with hooks would come back without them")
    storage = value.untyped_storage()
    if not storage.resizable():  # somebody else's memory, of which PyTorch makes a copy
        if whole:
            raise TensorNotKeptError("a tensor over an array's memory would come back as a copy")
        return None
    lies = value.storage_offset(), tuple(value.shape), value.stride(), value.is_conj(), value.is_neg()
    made = type(value).__name__, storage, value.dtype, lies, value.requires_grad
    attributes = object.__getattribute__(value, "__dict__") or None
    grad = value.grad if value.grad_fn is None else None
    if grad is None and attributes is None:
        return remade_tensor, made
    return remade_tensor, made, (grad, attributes), None, None, fill_tensor


def _attributes(optimizer: Any) -> dict[str, object]:
    """Without the wrapper that a schedule puts around `step` to see that it is called first."""
    found = dict(vars(optimizer))
    step = found.get("step")
    if getattr(getattr(step, "__func__", step), "__module__", "") == _OF_SCHEDULES or hasattr(
        step, "_wrapped_by_lr_sched"
    ):
        del found["step"]
    return found
