"""The model that an example uses: yours with `--model NAME` (or CENOTE_MODEL), else a script.

A scripted model answers with the given texts in order. The code in them runs for real, in a real jail; only
the model is scripted. Names are LiteLLM's, such as `openai/gpt-5` or `anthropic/claude-sonnet-5`; the key
comes from the environment variable that LiteLLM knows for the provider, such as OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import os

from cenote.models import LiteLLMModel, Model, ScriptedModel


def choose_model(script: list[str]) -> Model:
    """The model that the user named, or one that follows `script`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=os.environ.get("CENOTE_MODEL"), help="a name that LiteLLM knows")
    name = parser.parse_args().model
    return LiteLLMModel(model_id=name) if name else ScriptedModel(script)
