"""Which imported modules are the user's own: files of the working directory, and what a cell has made itself."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import cenote_worker
from cenote_worker.pristine import BUILTINS

__builtins__ = BUILTINS

_modules = sys.modules
_LIBRARIES = tuple(
    {f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {f"{Path(cenote_worker.__file__ or '').parent}/"}
)
_OURS = ("cenote_proto", "cenote_security", "cenote_worker")
_SITE = ("/site-packages/", "/dist-packages/")


class OwnModules:
    """Modules that were there before the first cell are libraries. joining: some cells have run before this."""

    def __init__(self, *, joining: bool = False) -> None:
        self.found: dict[str, ModuleType] = {}
        self._seen = {name for name in _modules if not joining or name.partition(".")[0] in _OURS}
        self._end: tuple[int, str | None] = (0, None)

    def refresh(self) -> tuple[str, ...]:
        """Looks for modules imported since; gives the names of the packages and single modules among them."""
        # Going through the names writes to each (its count of references): six hundred pages, which are copied
        # again after each fork. New names come last, so a look at the end tells as much.
        end = len(_modules), next(reversed(_modules), None)
        if end == self._end:
            return ()
        self._end = end
        new = _modules.keys() - self._seen
        self._seen |= new
        for dotted in new:
            module = _modules.get(dotted)
            if type(module) is ModuleType and dotted != "__main__" and _is_own(module):
                self.found[dotted] = module
        return tuple(sorted(dotted for dotted in new if type(dotted) is str and "." not in dotted))


def _is_own(module: ModuleType) -> bool:
    table = vars(module)
    file = table.get("__file__")
    if type(file) is not str:
        return table.get("__spec__") is None
    return not file.startswith(_LIBRARIES) and not any(site in file for site in _SITE)


def is_of_library(path: str) -> bool:
    """Whether a file belongs to what is installed, which no step changes."""
    return path.startswith(_LIBRARIES) or any(site in path for site in _SITE)
