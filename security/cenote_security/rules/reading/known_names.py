"""What is known beforehand of modules: other names of the same one, ways to one through another, usual aliases."""

from __future__ import annotations

from collections.abc import Mapping


def names(text: str) -> frozenset[str]:
    """The words of the text."""
    return frozenset(text.split())


SAME_MODULE: Mapping[str, str] = {
    "posix": "os",
    "nt": "os",
    "posixpath": "os.path",
    "ntpath": "os.path",
    "_io": "io",
    "_pyio": "io",
    "__builtin__": "builtins",
    "_socket": "socket",
    "_ctypes": "ctypes",
    "_pickle": "pickle",
    "cPickle": "pickle",
    "_thread": "threading",
    "_posixsubprocess": "subprocess",
    "_winapi": "subprocess",
    "_frozen_importlib": "importlib",
    "_frozen_importlib_external": "importlib",
    "_imp": "importlib",
    "imp": "importlib",
}
"""Implementations that modules are thin covers of: who may not use the one may not use the other."""

USUAL_ALIASES: Mapping[str, str] = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "pl": "polars"}

ASSUMED_MODULES = frozenset({"_magic_", "builtins", "importlib", "operator", "sys"})
"""A name that nothing in sight binds, and that is called so, is taken to be the module. `_magic_` is the object that
magics and shell commands are calls of, once a cell is written as Python."""

PASSED_THROUGH = names(
    """
    builtins cffi ctypes fcntl gc importlib marshal os pathlib posix pty pkgutil resource runpy shutil socket
    subprocess sys tempfile threading
    """
)
"""`x.os`, for a module x, is the module os that x imported. Only names that packages do not give to submodules
of their own: `scipy.signal`, `pyarrow.csv` and `numpy.random` are not the standard library's."""

PASSED_THROUGH_BY_STDLIB = names(
    """
    asyncio atexit codecs contextlib copyreg functools inspect io linecache logging operator pickle
    selectors ssl types typing
    """
)
"""The same, where x is of the standard library: `pandas.io` is pandas' own, `pathlib.io` is not pathlib's."""


def canonical(module: str) -> str:
    """One name for a module that has several."""
    root, dot, rest = module.partition(".")
    return f"{SAME_MODULE.get(root, root)}{dot}{rest}"


def is_within(path: str, package: str) -> bool:
    """Whether the dotted path is the package or something in it."""
    return path == package or path.startswith(package + ".")
