"""A pytest plugin: `cave_agent` is `cenote.cave_agent`, for unchanged test files of that library.

A missing name fails only the tests that use it, not the whole file.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

FLAT = {
    "models.errors": "streams",
    "models.base": "models",
    "models.retry": "streams",
    "runtime.executor": "runtime",
    "runtime.base": "runtime",
    "runtime.primitives": "runtime",
    "runtime.protocol": "runtime",
    "runtime.ipython_runtime": "runtime",
    "runtime.ipykernel_runtime": "runtime",
    "runtime.builtins": "runtime",
    "compaction.tokens": "compaction",
    "compaction.compactor": "compaction",
    "compaction.state": "compaction",
    "compaction.prompts": "compaction",
    "security.checker": "security",
    "security.rules": "security",
    "skills.discovery": "skills",
    "skills.registry": "skills",
    "skills.skill": "skills",
    "utils": "messages",
}
"""Modules of the library that are parts of a single module here."""


class Absent(Exception):
    """Stands for a missing name: an exception class, so that `except` and `pytest.raises` accept it."""

    name = ""

    def __init_subclass__(cls, name: str = "") -> None:
        cls.name = name

    def __init__(self, *_: object, **__: object) -> None:
        raise AttributeError(f"{type(self).name} is not there")


class StandIn(ModuleType):
    """One module of the library."""

    def __init__(self, name: str, home: ModuleType | None) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__dict__["home"] = home

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        home = self.__dict__["home"]
        if home is not None and hasattr(home, name):
            return getattr(home, name)
        full = f"{self.__name__}.{name}"

        class Missing(Absent, name=full):
            pass

        return Missing


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "cave_agent":
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        inner = spec.name.partition(".")[2]
        inner = FLAT.get(inner, inner)
        try:
            home = importlib.import_module(f"cenote.cave_agent.{inner}".rstrip("."))
        except ModuleNotFoundError:
            home = None
        return StandIn(spec.name, home)

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.insert(0, Finder())
