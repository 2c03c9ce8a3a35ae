"""Imported modules: which are the user's own, of which libraries the effects are known, and which submodules are
imported.

The user's own are files of the working directory, and modules that a cell has created. A package has its imported
submodules as attributes, independent of the importer: `import xml.dom` binds the same object to `xml` as `import xml`
does, and every later `xml.dom` depends on it.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import cenote_worker
from cenote_security.walls.interpreter import installed_names
from cenote_worker.execution.trace import ABSENT, Version
from cenote_worker.jail.tracking.code.bytecode_effects import Facts
from cenote_worker.jail.tracking.descriptions.classes import attributes, is_class, is_module, module_of
from cenote_worker.process.modules import KnownModules
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_modules = sys.modules
_STANDARD = tuple(
    {f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {f"{Path(cenote_worker.__file__ or '').parent}/"}
)
_OURS = ("cenote_proto", "cenote_security", "cenote_worker")
_COMPILED = tuple(EXTENSION_SUFFIXES)
_SITE = ("/site-packages/", "/dist-packages/")


def _other_folders() -> list[str]:
    """Folders on the path that an installer has put libraries into, besides the environment's own."""
    return [
        f"{folder.rstrip('/')}/"
        for folder in sys.path
        if folder.startswith("/")
        and not f"{folder}/".startswith(_STANDARD)
        and not f"{folder}/".endswith(_SITE)
        and installed_names(folder)
    ]


def _installed_in(folder: str) -> list[str]:
    paths = sorted(f"{folder}{name}" for name in installed_names(folder))
    return [path if path.endswith((".py", *_COMPILED)) else f"{path}/" for path in paths]


# According to the path at the start of the first program of the jails.
_OTHER_FOLDERS = tuple(_other_folders())
_LIBRARIES = (*_STANDARD, *(path for folder in _OTHER_FOLDERS for path in _installed_in(folder)))


class OwnModules:
    """Modules that existed before the first cell are libraries. joining: some cells have already run."""

    def __init__(self, *, joining: bool = False) -> None:
        self.found: dict[str, ModuleType] = {}
        self.new = frozenset[str]()
        """All dotted names that the latest look found newly imported."""
        ours = (each for each in _modules if each.partition(".")[0] in _OURS)
        self._seen = KnownModules(ours) if joining else KnownModules.imported()
        self._end = (0, None) if joining else end_of_imports()

    def refresh(self) -> None:
        """Looks for modules imported since."""
        if (end := end_of_imports()) == self._end:
            self.new = frozenset()
            return
        self._end = end
        new = self._seen.unknown()
        self._seen.add(new)
        self.new = frozenset(each for each in new if type(each) is str)
        for dotted in new:
            module = _modules.get(dotted)
            if module is None or not self._is_users_kind(module, dotted):
                continue
            if not _is_main(module) and _is_own(module) and not _is_of_extension(dotted):
                self.found[dotted] = module

    def _is_users_kind(self, module: object, dotted: str) -> bool:
        """Whether it is a plain module, or one of a user's class, which its own file may have set."""
        cls = type(module)
        if cls is ModuleType:
            return True
        return is_module(module) and module_of(cls) in ("__main__", "", dotted, *self.found)


def named_by(imports: Collection[str], imported: Iterable[str]) -> set[str]:
    """Of imported modules, those that bring the others with them: packages and single modules, and the modules in
    `import a.b` and `from a import b`. imports: the names after `import` and `from`.
    """
    return {
        dotted
        for dotted in imported
        if "." not in dotted or dotted in imports or dotted.rpartition(".")[0] in imports
    }


def imported_of(facts: Facts, own_modules: Collection[str]) -> set[str]:
    """The user's modules that the code imports, or takes names of; and imports that do not exist yet but may."""
    if "import_module" in facts.attributes | facts.loads:  # by a text, which may come from anywhere
        return {*own_modules}
    named = facts.imports | facts.submodules
    return {each for each in named if each in own_modules or (each in facts.imports and each not in _modules)}


def end_of_imports() -> tuple[int, str | None]:
    """New names come last, so a look there shows whether there are any without writing to other objects. See
    KnownModules."""
    return len(_modules), next(reversed(_modules), None)


def _is_main(module: ModuleType) -> bool:
    """Whether it is the namespace itself. `multiprocessing` enters it as `__mp_main__`, too."""
    return module is _modules.get("__main__")


def _is_own(module: ModuleType) -> bool:
    table = vars(module)
    file = table.get("__file__")
    if type(file) is not str:
        return table.get("__spec__") is None
    return not file.startswith(_LIBRARIES) and not any(site in file for site in _SITE)


def _is_of_extension(dotted: str) -> bool:
    """Whether an extension of a library has created the module, which then has neither a file nor a spec.

    A module that a user creates by hand contains the user's own objects.
    """
    parent, _, last = dotted.rpartition(".")
    home, module = _modules.get(parent), _modules[dotted]
    if type(home) is not ModuleType or vars(home).get(last) is not module or "__file__" in vars(module):
        return False
    file = vars(home).get("__file__")
    compiled = type(file) is str and file.endswith(_COMPILED) and is_of_library(file)
    if not compiled and not _is_of_extension(parent):
        return False
    top = dotted.partition(".")[0]
    return all(_is_made_by(top, value) for key, value in vars(module).items() if key[:2] != "__")


def _is_made_by(library: str, value: object) -> bool:
    """Whether it is a class of that library, without other code, or an instance of one."""
    cls = value if is_class(value) else type(value)
    assert isinstance(cls, type)
    functions = [each for each in attributes(cls).values() if type(each) is FunctionType]
    return module_of(cls).partition(".")[0] == library and all(
        is_of_library(each.__code__.co_filename) for each in functions
    )


def is_of_library(path: str) -> bool:
    """Whether a file belongs to what is installed, which no step changes."""
    return path.startswith(_LIBRARIES) or any(site in path for site in _SITE)


def path_in_library(path: str) -> str | None:
    """The path of a library's file, starting with its package; None for other files."""
    starts = [path.rpartition(site)[2] for site in _SITE if site in path]
    if starts:
        return starts[0]
    if not path.startswith(_LIBRARIES):
        return None
    return next((path[len(folder) :] for folder in _OTHER_FOLDERS if path.startswith(folder)), None)


_KNOWN: Final = frozenset(
    ("annotated_types", "attr", "attrs", "cloudpickle", "cycler", "dateutil", "kiwisolver", "matplotlib",
     "mpl_toolkits", "networkx", "numpy", "pandas", "polars", "pyarrow", "pydantic", "pydantic_core", "rich",
     "scipy", "seaborn", "six", "sklearn", "statsmodels", "sympy", "torch", "tqdm", "typing_extensions",
     "xxhash")
)  # fmt: skip
"""Libraries that open only files that their caller names, which is noticed, and query no database otherwise."""


def is_unknown(library: str) -> bool:
    """Whether it is installed, and its own effects are not known."""
    top = library.partition(".")[0]
    if top in sys.stdlib_module_names or top in _KNOWN:
        return False
    module = _modules.get(top)
    # Getting a missing attribute of a module calls its `__getattr__`, which may be a user's.
    place = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return type(place) is str and is_of_library(place) and "cenote_" not in top


IMPORTED: Final = Version("imported")
_MISSING: Final = object()


def version(dotted: str) -> Version:
    """Whether the module is there, as an attribute of its package."""
    package, _, key = dotted.rpartition(".")
    home, found = _modules.get(package), _modules.get(dotted)
    there = type(found) is ModuleType and _is_package(home) and vars(home).get(key) is found
    return IMPORTED if there else ABSENT


def spoken_of(facts: Facts, namespace: Mapping[str, object], own_modules: Set[str]) -> Iterator[str]:
    """Dotted names of modules that the code looks up as attributes of their packages, whether or not they exist.

    Packages that import attributes on demand are left out: there it makes no difference.
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
