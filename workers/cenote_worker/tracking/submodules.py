"""Which parts of libraries are imported: a package has those as attributes, whoever has imported them.

`import xml.dom` binds the same object to `xml` as `import xml` does, and every later `xml.dom` depends on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from types import ModuleType
from typing import Any, Final

from cenote_worker.pristine import BUILTINS
from cenote_worker.trace import ABSENT, Version
from cenote_worker.tracking.facts import Facts

__builtins__ = BUILTINS

IMPORTED: Final = Version("imported")
_modules = sys.modules
_MISSING: Final = object()


def version(dotted: str) -> Version:
    """Whether the module is there, as an attribute of its package."""
    package, _, key = dotted.rpartition(".")
    home, found = _modules.get(package), _modules.get(dotted)
    there = type(found) is ModuleType and _is_package(home) and vars(home).get(key) is found
    return IMPORTED if there else ABSENT


def spoken_of(facts: Facts, namespace: Mapping[str, object], own_modules: Set[str]) -> Iterator[str]:
    """Dotted names of modules that the code looks for as attributes of their packages, whether or not they are there.

    Packages that import what they are asked for are left out: there it makes no difference.
    """
    for chain in facts.chains:
        first, *rest = chain.rstrip("()=").split(".")
        home: Any = namespace.get(first)
        for key in rest:
            if not _is_package(home) or "__getattr__" in vars(home):
                break
            found, dotted = vars(home).get(key, _MISSING), f"{home.__name__}.{key}"
            if found is not _MISSING and _modules.get(dotted) is not found:
                break
            if dotted not in own_modules:
                yield dotted
            home = found
    for each in facts.loads if facts.texts else ():
        if _is_package(home := namespace.get(each)):
            found_by = (f"{home.__name__}.{text}" for text in facts.texts)
            yield from (dotted for dotted in found_by if dotted not in own_modules)


def _is_package(value: object) -> bool:
    return type(value) is ModuleType and "__path__" in vars(value)
