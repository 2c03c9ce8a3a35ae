"""Prints figures of the source tree: `python scripts/source_figures.py`. The layout tests check most of them.

A module's importers are the source modules that import it anywhere; an entry point has none.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = {"cenote": "platform", "cenote_worker": "workers", "cenote_security": "security"}

SMALL: Final = 120
"""Lines below which a module with one importer belongs in that importer, or with others of its subject."""

FULL: Final = 15
"""Most modules in a folder, besides its `__init__`."""

VAGUE: Final = re.compile(r"\b(whoever|nobody|somebody)\b", re.IGNORECASE)
"""Words for which the text should name the role: the caller, the owner, a client."""

LEVELS: Final = re.compile(r"""["'](strict|landlock|gvisor)["']""")
LIBRARIES: Final = re.compile(r"\b(pandas|numpy|polars|torch|duckdb|sklearn|matplotlib)\b")
"""What one place should know: the names of isolation levels (`walls/`), and those of libraries (`libraries/`)."""


@dataclass
class Module:
    """One source file."""

    name: str
    path: Path
    imports: set[str] = field(default_factory=set)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def code(self) -> str:
        """Without docstrings and comments, as `ast.unparse` writes it."""
        for node in ast.walk(tree := ast.parse(self.text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
        return ast.unparse(tree)

    def names(self, name: re.Pattern[str]) -> bool:
        """Whether its code has the name. Most texts have not, and need no parsing."""
        return bool(name.search(self.text) and name.search(self.code))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def header(self) -> int:
        """Lines up to the end of the last of the leading imports: the docstring and the imports."""
        end = 0
        for statement in self.tree.body:
            if not isinstance(statement, (ast.Expr, ast.Import, ast.ImportFrom)) and not _is_guard(statement):
                break
            end = statement.end_lineno or 0
        return end

    @property
    def classes(self) -> list[str]:
        """Public classes at the module's top level."""
        named = [each.name for each in self.tree.body if isinstance(each, ast.ClassDef)]
        return [name for name in named if not name.startswith("_")]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)


class Sources:
    """All hand-written modules, with their imports of each other."""

    def __init__(self, root: Path = ROOT) -> None:
        self.modules: dict[str, Module] = {}
        for package, folder in PACKAGES.items():
            for path in sorted((root / folder / package).rglob("*.py")):
                dotted = ".".join(path.relative_to(root / folder).with_suffix("").parts)
                name = dotted.removesuffix(".__init__")
                self.modules[name] = Module(name, path)
        self.importers: dict[str, set[str]] = {name: set() for name in self.modules}
        for module in self.modules.values():
            for name in self._imported(module):
                self.importers[name].add(module.name)

    def _imported(self, module: Module) -> set[str]:
        found = set[str]()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        return {name for name in found if name in self.modules and name != module.name}

    def fragments(self) -> list[str]:
        """Small modules with one importer."""
        return [
            module.name
            for module in self.modules.values()
            if not module.is_package and module.lines < SMALL and len(self.importers[module.name]) == 1
        ]

    def folders(self) -> Counter[str]:
        """Number of modules in each folder, besides its `__init__`."""
        return Counter(
            module.path.parent.relative_to(ROOT).as_posix()
            for module in self.modules.values()
            if not module.is_package
        )

    def twice(self) -> list[str]:
        """Public names of classes that are defined more than once."""
        counted = Counter(name for module in self.modules.values() for name in module.classes)
        return sorted(name for name, times in counted.items() if times > 1)

    def naming(self, names: re.Pattern[str], home: str) -> list[str]:
        """Modules whose code has one of these names, but for those with `home` in their path."""
        return [
            module.name
            for module in self.modules.values()
            if f".{home}." not in f"{module.name}." and module.names(names)
        ]

    def spread(self, option: str) -> list[str]:
        """Modules whose code names an option."""
        named = re.compile(rf"\b{option}\b")
        return [module.name for module in self.modules.values() if module.names(named)]

    def vague(self) -> int:
        """Lines with a vague word."""
        lines = (line for module in self.modules.values() for line in module.text.splitlines())
        return sum(bool(VAGUE.search(line)) for line in lines)


def main() -> None:
    sources = Sources()
    modules = list(sources.modules.values())
    lines = sum(module.lines for module in modules)
    print(f"modules                               {len(modules):8,}")
    print(f"lines                                 {lines:8,}")
    print(f"lines of a module, median             {median(module.lines for module in modules):8,.0f}")
    print(f"lines of the largest                  {max(module.lines for module in modules):8,}")
    print(f"docstrings and imports at the top     {sum(module.header for module in modules) / lines:8.1%}")
    print(f"folders with more than {FULL} modules     {sum(n > FULL for n in sources.folders().values()):8,}")
    print(f"modules under {SMALL} lines, one importer {len(sources.fragments()):8,}")
    print(f"class names defined more than once    {len(sources.twice()):8,}")
    print(f"modules that name a level, not walls  {len(sources.naming(LEVELS, 'walls')):8,}")
    print(f"modules that name a library           {len(sources.naming(LIBRARIES, 'libraries')):8,}")
    print(f"lines with a vague word               {sources.vague():8,}")


if __name__ == "__main__":
    main()
