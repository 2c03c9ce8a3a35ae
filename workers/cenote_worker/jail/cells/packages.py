"""A jail's network status, and the answer to a request to install packages."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

_NONE = "this runtime has no network"
_PROXIED = (
    "no direct connections here: listed names only, through the proxy that HTTPS_PROXY names "
    "(requests, httpx, urllib and pip use it by themselves)"
)


def has_way_out() -> bool:
    """Whether programs here have a proxy."""
    return "HTTPS_PROXY" in os.environ


def network_hint() -> str:
    """The message for code that tried to connect by itself."""
    return _PROXIED if has_way_out() else _NONE


_INSTALL = re.compile(
    r"\s*(?:(?=\S*?python)\S++\s+-m\s+)?(?:uv\s+)?(?:pip[\d.]*|conda|mamba|uv)\s+(?:install|add)\b(.*)"
)
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(?:[<>=!~;@].*)?")
_TAKES_VALUE = {"-r", "-c", "-i", "-e", "-f", "-t", "-n", "--requirement", "--index-url", "--target"}


class NoNetworkError(RuntimeError):
    """A package is not installed, and nothing can be downloaded here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Requested packages: what is installed, as `name version`, and what is not."""

    installed: tuple[str, ...]
    missing: tuple[str, ...]

    def report(self) -> str:
        """One line for the installed ones. Raises NoNetworkError if any is missing."""
        here = f"already installed: {', '.join(self.installed)}" if self.installed else ""
        if not self.missing:
            return here or "nothing to install"
        also = f"; {here}" if here else ""
        raise NoNetworkError(
            f"cannot install {', '.join(self.missing)}: this runtime has no network; "
            f"use what is installed or the standard library{also}"
        )


def install_request(command: str) -> Availability | None:
    """The packages that `pip install a b` and similar commands ask for; None for another command."""
    match = _INSTALL.match(command)
    if match is None:
        return None
    installed: list[str] = []
    missing: list[str] = []
    for name in _requested(match[1].split()):
        version = installed_version(name)
        (installed if version else missing).append(f"{name} {version}" if version else name)
    return Availability(installed=tuple(installed), missing=tuple(missing))


def installed_version(name: str) -> str:
    """The version of a distribution, empty when it is not installed."""
    from importlib import metadata  # 10 ms, and few cells ask

    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return ""


def _requested(words: list[str]) -> list[str]:
    names, is_value = [], False
    for word in words:
        if word in ("&&", ";", "|", "||", ">", "#"):
            break
        if not is_value and (match := _REQUIREMENT.fullmatch(word.strip("'\""))):
            names.append(match[1])
        is_value = word in _TAKES_VALUE
    return names
