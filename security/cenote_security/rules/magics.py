"""A rule about what IPython adds to the language: magics and shell commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from cenote_security.rules.names import names_of
from cenote_security.rules.reading.names import names
from cenote_security.rules.rule import UseRule
from cenote_security.rules.use import Use, Watch

COMPUTING_MAGICS = names(
    """
    %autoreload %config %load_ext %lsmagic %matplotlib %pdoc %pinfo %precision %pylab %reload_ext %reset
    %reset_selective %time %timeit %who %who_ls %whos %xdel
    %%capture %%latex %%markdown %%time %%timeit
    """
)
"""Magics that start no program and open no file."""

_SHELL = "a shell command"
_CALLED = {
    "_magic_.shell": _SHELL,
    "_magic_.shell_lines": _SHELL,
    "_magic_.write_file": "%%writefile",
    "IPython.get_ipython": "get_ipython()",
    "IPython.core.getipython.get_ipython": "get_ipython()",
}
"""What rewritten cells call, and the object that runs any magic by its name. The other magics stand in the arguments
of a call: a reading reports them by name."""

_RAW = re.compile(r"(?P<shell>!)|(?P<magic>%%?\w+)|(?:[\w.]+(?P<source>\?\?)|(?P<front>\?\?)[\w.]+)$")


class MagicRule(UseRule):
    """Forbids shell commands (`!ls`), the source of objects (`name??`) and every magic that is not allowed.

    allowed_magics: as they are written: `%matplotlib`, `%%time`. By default those that only compute. `name?` shows
        a docstring and is allowed.
    """

    default_remedy = "do it in Python with the variables and functions that are there"

    def __init__(
        self, allowed_magics: Iterable[str] = COMPUTING_MAGICS, *, remedy: str | None = None
    ) -> None:
        self.allowed_magics = names_of(allowed_magics, '["%matplotlib"]')
        super().__init__(Watch(functions=frozenset(_CALLED)), remedy)

    def judge(self, use: Use) -> str | None:
        if use.kind == "magic":
            magic = _SHELL if use.name == "!" else use.name
        elif use.kind == "function" and use.name in _CALLED:
            magic = _CALLED[use.name]
        else:
            return None
        return None if magic in self.allowed_magics else f"{magic} is not allowed here"


def raw_magics(code: str) -> Iterator[Use]:
    """The magics and shell commands of a cell as it was written, which Python cannot parse."""
    for number, line in enumerate(code.split("\n"), start=1):
        text = line.strip()
        found = _RAW.match(text) or _RAW.match(text.partition("=")[2].lstrip())
        if found is not None:
            node = ast.Pass(lineno=number, col_offset=0, end_lineno=number, end_col_offset=len(line.encode()))
            yield Use(kind="magic", name=found[found.lastgroup or 0], node=node)
