"""A rule about installing packages, which a jail without a network cannot do."""

from __future__ import annotations

import re

from cenote_security.rules.rule import UseRule
from cenote_security.rules.use import Use, Watch

_INSTALL = re.compile(r"\b(?:pip3?|uv|conda|mamba|apt|apt-get|npm) (?:\S+ ){0,9}?(?:install|add)\b")


class InstallRule(UseRule):
    """Forbids starting `pip install` and its kind in a child process: it could only fail, slowly."""

    default_remedy = "there is no network here: import what is there and do without the rest"

    def __init__(self, *, remedy: str | None = None) -> None:
        super().__init__(Watch(), remedy)

    def judge(self, use: Use) -> str | None:
        if use.kind == "command" and _INSTALL.search(use.name):
            return "packages cannot be installed here"
        return None
