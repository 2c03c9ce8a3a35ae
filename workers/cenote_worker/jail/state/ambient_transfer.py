"""Transfers state that no name leads to from one process to another; see HIDDEN in `execution/trace.py`.

Call it in the context of the cells: some of the state is a context variable.
"""

from __future__ import annotations

import decimal
import importlib
import locale
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from cenote_worker.jail.libraries.matplotlib_figures import present_backend
from cenote_worker.jail.state.pickles_unsafe import NotKept
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS


def take_states(states: Iterable[str]) -> dict[str, object]:
    """Copies of these states. A state whose library is not imported is left out. Raises NotKept."""
    found = {state: _of(state)[0]() for state in states}
    return {state: value for state, value in found.items() if value is not None}


def put_states(taken: Mapping[str, object]) -> None:
    """Sets all of them, or none. Raises any error from setting one."""
    before = take_states(taken)
    try:
        for state, value in taken.items():
            _of(state)[1](value)
    except BaseException:
        for state, value in before.items():
            _of(state)[1](value)
        raise


SETTINGS: Final = (
    "logging", "locale", "process", "matplotlib", "pandas", "decimal", "numpy", "torch", "socket", "csv", "colormaps",
    "sklearn",
)  # fmt: skip
"""Settings of the process and its libraries; the other states are positions of programs, and their random numbers."""


def take_settings() -> dict[str, object]:
    """The settings that can be copied; errors are ignored."""
    found = dict[str, object]()
    for state in SETTINGS:
        with suppress(Exception):
            found |= take_states((state,))
    return found


def put_settings(taken: Mapping[str, object]) -> None:
    """Sets those that can be set."""
    for state, value in taken.items():
        with suppress(Exception):
            put_states({state: value})


_Carried = tuple[Callable[[], object], Callable[[Any], None]]
"""Functions that take a state, and that set it."""


def _of(state: str) -> _Carried:
    try:
        return _STATES[state]
    except KeyError:
        raise NotKept(f"the state `{state}` cannot be carried") from None


def _put_environ(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _take_path() -> object:
    return list(sys.path)


def _put_path(entries: list[str]) -> None:
    sys.path[:] = entries


def _take_filters() -> object:
    return list(warnings.filters)


def _put_filters(filters: list[Any]) -> None:
    warnings.resetwarnings()  # tells the interpreter that its cached filters are outdated
    warnings.filters[:] = filters  # type: ignore[index]


def _take_identity() -> object:
    """The names of the namespace's module and package. Signal handlers are different in another process."""
    table = vars(sys.modules["__main__"])
    return {key: table[key] for key in ("__name__", "__package__") if key in table}


def _put_identity(said: Mapping[str, object]) -> None:
    table = vars(sys.modules["__main__"])
    for key in ("__name__", "__package__"):
        table.pop(key, None)
    table.update(said)


def _take_locale() -> object:
    return locale.setlocale(locale.LC_ALL)


def _put_locale(name: str) -> None:
    locale.setlocale(locale.LC_ALL, name)


def _take_logging() -> object:
    """The levels, by logger, and whether it has a handler that does nothing, as libraries install. Other handlers
    hold streams and files.
    """
    loggers = _loggers()
    if any(logger.filters or not all(map(_does_nothing, logger.handlers)) for logger in loggers.values()):
        raise NotKept("handlers and filters of `logging` cannot be carried")
    levels = {
        name: (logger.level, logger.propagate, logger.disabled, bool(logger.handlers))
        for name, logger in loggers.items()
    }
    return levels, logging.Logger.manager.disable


def _put_logging(taken: tuple[dict[str, tuple[int, bool, bool, bool]], int]) -> None:
    levels, disabled = taken
    for name in levels.keys() | _loggers().keys():
        logger = logging.getLogger(name)
        level, logger.propagate, logger.disabled, quiet = levels.get(
            name, (logging.NOTSET, True, False, bool(logger.handlers))
        )
        logger.setLevel(level)
        if quiet and not logger.handlers:
            logger.addHandler(logging.NullHandler())
        elif not quiet:
            for handler in filter(_does_nothing, list(logger.handlers)):
                logger.removeHandler(handler)
    logging.disable(disabled)


def _does_nothing(handler: logging.Handler) -> bool:
    return type(handler) is logging.NullHandler


def _loggers() -> dict[str, logging.Logger]:
    known = logging.Logger.manager.loggerDict.items()
    return {"": logging.getLogger()} | {name: each for name, each in known if type(each) is logging.Logger}


def _take_numpy_random() -> object:
    numpy = sys.modules.get("numpy.random")
    return None if numpy is None else numpy.get_state(legacy=False)


def _put_numpy_random(state: object) -> None:
    importlib.import_module("numpy.random").set_state(state)


def _take_torch_random() -> object:
    torch: Any = sys.modules.get("torch")
    return None if torch is None else bytes(torch.get_rng_state().tolist())


def _put_torch_random(state: bytes) -> None:
    torch: Any = importlib.import_module("torch")
    torch.set_rng_state(torch.tensor(list(state), dtype=torch.uint8, device="cpu"))


def _take_torch() -> object:
    """The most common settings; function and dispatch modes cannot be carried."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        raise NotKept("a mode of PyTorch, as for the default device, cannot be carried")
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return {
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": (deterministic, warns),
        "threads": torch.get_num_threads(),
        "anomaly": torch.is_anomaly_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "warn_always": torch.is_warn_always_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "printing": dict(vars(torch._tensor_str.PRINT_OPTS)),
    }


def _put_torch(taken: dict[str, Any]) -> None:
    torch: Any = importlib.import_module("torch")
    deterministic, warns = taken["deterministic"]
    torch.set_default_dtype(taken["dtype"])
    torch.set_grad_enabled(taken["gradients"])
    torch.use_deterministic_algorithms(deterministic, warn_only=warns)
    if torch.get_num_threads() != taken["threads"]:
        torch.set_num_threads(taken["threads"])
    torch.autograd.set_detect_anomaly(taken["anomaly"])
    torch.set_float32_matmul_precision(taken["precision"])
    torch.set_warn_always(taken["warn_always"])
    torch.backends.mkldnn.enabled = taken["mkldnn"]
    vars(torch._tensor_str.PRINT_OPTS).update(taken["printing"])


def _take_numpy() -> object:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else (numpy.get_printoptions(), numpy.geterr(), numpy.getbufsize())


def _put_numpy(taken: tuple[dict[str, Any], dict[str, Any], int]) -> None:
    numpy = importlib.import_module("numpy")
    printing, errors, size = taken
    numpy.setbufsize(size)
    numpy.set_printoptions(**printing)
    numpy.seterr(**errors)


def _take_pandas() -> object:
    """All options, by their full names."""
    config = sys.modules.get("pandas._config.config")
    return None if config is None else _flat(config._global_config, "")


def _flat(options: Mapping[str, Any], prefix: str) -> dict[str, object]:
    found = dict[str, object]()
    for key, value in options.items():
        found |= _flat(value, f"{prefix}{key}.") if type(value) is dict else {f"{prefix}{key}": value}
    return found


def _put_pandas(wanted: Mapping[str, object]) -> None:
    pandas = importlib.import_module("pandas")
    present = _flat(sys.modules["pandas._config.config"]._global_config, "")
    for key, value in wanted.items():
        if key in present and present[key] is not value and repr(present[key]) != repr(value):
            pandas.set_option(key, value)


def _take_matplotlib() -> object:
    figures = getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None)
    if figures is not None and figures.figs:
        raise NotKept("open figures cannot be carried")
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None:
        return None
    # A backend that was not chosen yet is marked by a special object.
    return {key: value for key, value in dict.items(matplotlib.rcParams) if type(value) is not object}


def _put_decimal(wanted: decimal.Context) -> None:
    """Sets the current context in place, since names of the user's may refer to it."""
    present = decimal.getcontext()
    for key in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp"):
        setattr(present, key, getattr(wanted, key))
    present.traps.update(wanted.traps)
    present.flags.update(wanted.flags)


def _take_csv() -> object:
    """Dialects, and the limit of a field's length."""
    csv = sys.modules.get("_csv")
    if csv is None:
        return None
    dialects = {name: csv.get_dialect(name) for name in csv.list_dialects() if type(name) is str}
    told = {name: {key: getattr(each, key) for key in _OF_DIALECTS} for name, each in dialects.items()}
    return told, csv.field_size_limit()


_OF_DIALECTS: Final = (
    "delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting", "skipinitialspace", "strict",
)  # fmt: skip


def _put_csv(taken: tuple[dict[str, dict[str, Any]], int]) -> None:
    csv = importlib.import_module("csv")
    dialects, limit = taken
    for name in set(csv.list_dialects()) - dialects.keys():
        csv.unregister_dialect(name)
    for name, told in dialects.items():
        csv.register_dialect(name, **told)
    csv.field_size_limit(limit)


def _take_socket() -> object:
    socket = sys.modules.get("socket")
    return None if socket is None else (socket.getdefaulttimeout(),)


def _put_socket(taken: tuple[float | None]) -> None:
    importlib.import_module("socket").setdefaulttimeout(*taken)


def _take_sklearn() -> object:
    config = sys.modules.get("sklearn._config")
    return None if config is None else config.get_config()


def _put_sklearn(wanted: dict[str, Any]) -> None:
    importlib.import_module("sklearn._config").set_config(**wanted)


def _take_colormaps() -> object:
    """Colormaps that programs have registered."""
    module = sys.modules.get("matplotlib.cm")
    if module is None:
        return None
    registry = module._colormaps
    return {name: registry[name] for name in registry if name not in registry._builtin_cmaps}


def _put_colormaps(wanted: Mapping[str, Any]) -> None:
    registry = importlib.import_module("matplotlib.cm")._colormaps
    for name in set(registry) - set(registry._builtin_cmaps) - wanted.keys():
        registry.unregister(name)
    for name, each in wanted.items():
        registry.register(each, name=name, force=True)


def _put_matplotlib(parameters: Mapping[str, object]) -> None:
    backend = {key: present_backend(value) for key, value in parameters.items() if key == "backend"}
    dict.update(importlib.import_module("matplotlib").rcParams, {**parameters, **backend})


_STATES: Final[Mapping[str, _Carried]] = {
    "random": (random.getstate, random.setstate),
    "numpy.random": (_take_numpy_random, _put_numpy_random),
    "torch.random": (_take_torch_random, _put_torch_random),
    "environ": (lambda: dict(os.environ), _put_environ),
    "cwd": (os.getcwd, os.chdir),
    "sys.path": (_take_path, _put_path),
    "warnings": (_take_filters, _put_filters),
    "logging": (_take_logging, _put_logging),
    "locale": (_take_locale, _put_locale),
    "process": (_take_identity, _put_identity),
    "matplotlib": (_take_matplotlib, _put_matplotlib),
    "pandas": (_take_pandas, _put_pandas),
    "decimal": (lambda: decimal.getcontext().copy(), _put_decimal),
    "numpy": (_take_numpy, _put_numpy),
    "torch": (_take_torch, _put_torch),
    "csv": (_take_csv, _put_csv),
    "socket": (_take_socket, _put_socket),
    "sklearn": (_take_sklearn, _put_sklearn),
    "colormaps": (_take_colormaps, _put_colormaps),
}
