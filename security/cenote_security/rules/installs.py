"""A rule about installing packages, which a jail without a network cannot do."""

from __future__ import annotations

import ast
import re

from cenote_security.rules.rule import Context, SecurityRule

_INSTALL = re.compile(r"\b(?:pip3?|uv|conda|mamba|apt|apt-get|npm)\b.{0,200}?\b(?:install|add)\b", re.DOTALL)
_RUNNERS = re.compile(r"(?:subprocess|os|pip|asyncio)\.")


class InstallRule(SecurityRule):
    """Forbids starting `pip install` and its kind in a child process: it could only fail, slowly."""

    remedy = "there is no network here: import what you need and do without what is missing"
    nodes = (ast.Call,)

    def visit(self, node: ast.AST, context: Context) -> str | None:
        if not isinstance(node, ast.Call) or not node.args:
            return None
        name = context.name_of(node.func)
        if name is None or not _RUNNERS.match(name):
            return None
        command = " ".join(_words(node, context))
        return "packages cannot be installed" if _INSTALL.search(command) else None


def _words(node: ast.Call, context: Context) -> list[str]:
    words: list[str] = []
    for argument in node.args:
        parts = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        words.extend(str(context.constant_of(part)) for part in parts)
    return words
