"""Runs injection.py of a skill in this process: it is code of the user's own, as trusted as the program itself."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from cenote.runtime.inject.injectables import Function, Injectable, Type, Variable
from cenote.skills.skill import SkillError


def load_exports(path: Path, name: str) -> tuple[Injectable, ...]:
    """What `__exports__` of a file lists. Raises SkillError, without the path."""
    module = _run(path, name)
    exports = getattr(module, "__exports__", None)
    if exports is None:
        raise SkillError("Missing __exports__, a list of Function, Variable and Type objects")
    if not isinstance(exports, list | tuple):
        raise SkillError("__exports__ must be a list of Function, Variable and Type objects")
    for index, item in enumerate(exports):
        if not isinstance(item, Function | Variable | Type):
            raise SkillError(
                f"__exports__[{index}] must be a Function, Variable or Type, not {type(item).__name__}"
            )
    names = [item.name for item in exports]
    for item_name in names:
        if names.count(item_name) > 1:
            raise SkillError(f"__exports__ has the name {item_name!r} twice")
    return tuple(exports)


def _run(path: Path, name: str) -> ModuleType:
    import cloudpickle

    digest = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    module_name = f"cenote_skill_{name.replace('-', '_')}_{digest}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise SkillError("not a Python module")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and annotations look their module up while it runs, and later.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # `sys.exit()` of a script does not end its user's program
        sys.modules.pop(module_name, None)
        raise SkillError(
            f"Error loading injection module: {_line_of(error, path)}{type(error).__name__}: {error}"
        ) from error
    # No jail can import this module: what it defines travels by value. Some modules remove themselves.
    sys.modules.setdefault(module_name, module)
    cloudpickle.register_pickle_by_value(module)
    return module


def _line_of(error: BaseException, path: Path) -> str:
    """Where in the file it failed, as `line 3: `."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"line {error.lineno}: "
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(path):
            line = frame.tb_lineno
        frame = frame.tb_next
    return f"line {line}: " if line else ""
