"""Importing the models costs almost nothing: HTTP and tokenizers are loaded on first use."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cenote.models

HEAVY = {"asyncio", "httpx", "litellm", "openai", "pydantic", "ssl", "tiktoken"}


def run(code: str) -> str:
    roots = [str(Path(__file__).resolve().parents[3] / root) for root in ("platform", "workers", "security")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(roots)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=environment
    ).stdout


def test_the_package_adds_under_20_milliseconds() -> None:
    """The best of five, in CPU time, so that a busy machine causes no failure."""
    clock = "time.process_time()"
    code = f"import time, cenote; start = {clock}; import cenote.models; print({clock} - start)"
    assert min(float(run(code)) for _ in range(5)) < 0.020


def test_models_are_made_without_what_they_use_later() -> None:
    """Even all the names at once, and one model of each kind."""
    code = (
        "import sys\nfrom cenote.models import *\n"
        "LiteLLMModel('m'), OpenAIServerModel('m'), ScriptedModel(['a'])\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    assert set() == HEAVY & set(run(code).split())


@pytest.mark.parametrize("name", cenote.models.__all__)
def test_each_name_is_loaded_from_its_home(name: str) -> None:
    """An unknown one is missing, as in any module."""
    assert getattr(importlib.import_module("cenote.models"), name) is not None
    assert name in dir(cenote.models)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Not an error of the loading."""
    with pytest.raises(AttributeError, match="no attribute 'GPT'"):
        _ = cenote.models.GPT
