"""What a server says of its model's limits. No I/O: which pages to ask for, and how to read each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_TOKENS = 100_000_000
"""More than that is no context window of any model."""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Tokens; None where the server does not say. context_window: of prompt and answer together. max_output: of one
    answer."""

    context_window: int | None = None
    max_output: int | None = None


def pages(base_url: str) -> tuple[str, ...]:
    """Where servers say it, in the order in which to ask: vLLM, OpenRouter and others in the list of models, then
    llama.cpp, LM Studio and Ollama in pages of their own."""
    parts = urlsplit(base_url)
    root = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1"), query="").geturl()
    return f"{base_url}/models", f"{root}/props", f"{root}/api/v0/models", f"{root}/api/ps"


def read_limits(page: object, model_id: str) -> ModelLimits:
    """The limits of a model in one of these pages."""
    found = [_of_entry(entry) for entry in _entries(page, model_id)]
    window = next((limits.context_window for limits in found if limits.context_window), None)
    return ModelLimits(window, next((limits.max_output for limits in found if limits.max_output), None))


def _entries(page: object, model_id: str) -> Iterator[Mapping[str, object]]:
    """What a page says of the model: of several, of that with its name; a server with one model has no other."""
    if not isinstance(page, Mapping):
        return
    yield page
    for key in ("data", "models"):
        listed = page.get(key)
        entries = (
            [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
        )
        for entry in entries:
            if len(entries) == 1 or model_id in (entry.get("id"), entry.get("name"), entry.get("model")):
                yield entry


def _of_entry(entry: Mapping[str, object]) -> ModelLimits:
    settings, meta, provider = (
        inner if isinstance(inner := entry.get(key), Mapping) else {}
        for key in ("default_generation_settings", "meta", "top_provider")
    )
    return ModelLimits(
        _first(
            settings.get("n_ctx"),  # llama.cpp, of one slot
            entry.get("max_model_len"),  # vLLM
            entry.get("loaded_context_length"),  # LM Studio; without it the model is not loaded
            provider.get("context_length"),  # OpenRouter, of the provider that answers
            entry.get("context_length"),  # OpenRouter, Together; Ollama, of what is loaded
            entry.get("context_window"),  # Groq
            meta.get("n_ctx"),
        ),
        _first(
            provider.get("max_completion_tokens"),
            entry.get("max_completion_tokens"),
            entry.get("max_output_tokens"),
        ),
    )


def _first(*given: object) -> int | None:
    """The first that is a number of tokens."""
    return next(
        (n for n in given if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= MAX_TOKENS), None
    )
