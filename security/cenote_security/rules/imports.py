"""Rules about modules: a list of those that are forbidden, or of those that are allowed."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from cenote_security.rules import remedies
from cenote_security.rules.names import names_of
from cenote_security.rules.reading.modules import PASSED_THROUGH, canonical, is_within
from cenote_security.rules.rule import UseRule
from cenote_security.rules.use import Use, Watch

UNREADABLE = "which module is imported cannot be told from the code"

_EXAMPLE = '["os", "socket"]'


class ImportRule(UseRule):
    """Forbids modules with all that is in them: `os` also means `os.path`, `posix`, and `shutil.os`.

    By any road: `import`, `from`, `__import__`, `importlib`, `sys.modules`, attributes of other modules.
    dynamic: whether a dynamic import whose module cannot be told is let through. remedy: what to do instead.
    """

    def __init__(
        self, forbidden_modules: Iterable[str], *, dynamic: bool = False, remedy: str | None = None
    ) -> None:
        self.forbidden_modules = names_of(forbidden_modules, _EXAMPLE)
        self._refuses_unreadable = bool(self.forbidden_modules) and not dynamic
        super().__init__(Watch(modules=self.forbidden_modules), remedy)

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.forbidden_modules)})"

    def judge(self, use: Use) -> str | None:
        if use.kind == "unreadable module":
            return UNREADABLE if self._refuses_unreadable else None
        if use.kind == "module" and self._forbidden(use.name):
            return f"module {use.name} is not allowed here"
        return None

    def _forbidden(self, module: str) -> bool:
        names = {module, canonical(module)}
        return any(is_within(name, forbidden) for forbidden in self.forbidden_modules for name in names)

    def advice(self, use: Use) -> str:
        if use.kind == "unreadable module":
            return self.remedy or "write a plain import statement"
        known = remedies.MODULES.get(canonical(use.name).partition(".")[0])
        return self.remedy or known or self.default_remedy


class AllowedImportsRule(UseRule):
    """Forbids every module that is not in the list or within one that is, and private ones (`numpy._core`)."""

    def __init__(self, allowed_modules: Iterable[str], *, remedy: str | None = None) -> None:
        self.allowed_modules = names_of(allowed_modules, _EXAMPLE)
        watched = frozenset(sys.stdlib_module_names & PASSED_THROUGH)
        super().__init__(Watch(modules=watched - self.allowed_modules), remedy)

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.allowed_modules)})"

    def judge(self, use: Use) -> str | None:
        if use.kind == "unreadable module":
            return UNREADABLE
        if use.kind != "module":
            return None
        within = [allowed for allowed in self.allowed_modules if is_within(use.name, allowed)]
        if not within:
            return f"module {use.name} is not among those that are allowed here"
        if all("._" in use.name[len(allowed) :] for allowed in within):
            return f"module {use.name} is private to its library"
        return None

    def advice(self, use: Use) -> str:
        known = remedies.MODULES.get(canonical(use.name).partition(".")[0])
        return self.remedy or known or self.default_remedy
