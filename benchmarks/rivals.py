"""Rivals with environments of their own, which `benchmarks/run` creates."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "CENOTE_BENCH_RIVALS"
"""The folder that contains `.venv-bench-NAME` of each rival; this project's folder by default."""


def interpreter(name: str) -> str:
    """The Python that a rival is installed for. Raises ImportError if there is none."""
    python = Path(os.environ.get(FOLDER, ROOT)) / f".venv-bench-{name}" / "bin" / "python"
    if not python.exists():
        raise ImportError(f"no environment of {name}: `benchmarks/run` makes it")
    return str(python)
