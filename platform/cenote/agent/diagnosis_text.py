"""A diagnosis as a model reads it: where the values of the failing expression came from."""

from __future__ import annotations

from cenote.agent import prompts
from cenote.harness.diagnosis import Diagnosis, Origin

_MAX_ORIGINS = 5
"""Nearest first: what is further away than these explains little."""

_MAX_LINE = 100
"""Characters that are quoted of code."""


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """A few lines; empty when nothing is known that the error itself does not say."""
    # Builtins, and names that the step was to make, are made by no step either: only what the error misses is told.
    missed = diagnosis.error.message
    known = [origin for origin in diagnosis.origins if origin.step or f"'{origin.name}'" in missed]
    if not known:
        return ""
    source = f"`{_quoted(diagnosis.source)}`" if diagnosis.source.strip() else f"step {diagnosis.step}"
    origins = "\n".join(map(_line, known[:_MAX_ORIGINS]))
    return prompts.DIAGNOSIS.format(source=source, origins=origins)


def _line(origin: Origin) -> str:
    """`df: step 2 (ana), df = read()`."""
    if not origin.step:
        return f"{origin.name}: no step makes it"
    author = f" ({origin.author})" if origin.author else ""
    if origin.missing:
        return f"{origin.name}: removed by step {origin.step}{author}"
    code = _quoted(origin.code)
    return f"{origin.name}: step {origin.step}{author}, {code or 'changed in place'}"


def _quoted(code: str) -> str:
    first, _, more = code.strip().partition("\n")
    return f"{first[:_MAX_LINE]} ..." if more or len(first) > _MAX_LINE else first
