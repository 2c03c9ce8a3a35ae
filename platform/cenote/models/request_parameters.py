"""Which keywords a model's constructor takes: for a request, for an address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from cenote_security.errors import UsageError

_OPENAI: Final = (
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens metadata "
    "modalities moderation parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options "
    "prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store "
    "temperature tool_choice tools top_logprobs top_p user verbosity web_search_options"
)
_OTHERS: Final = (  # vLLM, SGLang, llama.cpp, Ollama, LM Studio, OpenRouter, Mistral, DeepSeek, Together
    "add_generation_prompt allowed_token_ids bad_words best_of cache_prompt chat_template chat_template_kwargs "
    "dynatemp_exponent dynatemp_range dry_allowed_length dry_base dry_multiplier dry_penalty_last_n enable_thinking "
    "ignore_eos include_reasoning grammar guided_choice guided_grammar guided_json guided_regex id_slot json_schema "
    "keep_alive length_penalty min_keep min_p min_tokens mirostat mirostat_eta mirostat_tau models n_predict num_ctx "
    "num_predict options plugins priority prompt_mode provider random_seed reasoning reasoning_budget "
    "reasoning_format repeat_last_n repeat_penalty repetition_penalty route safe_prompt samplers skip_special_tokens "
    "spaces_between_special_tokens stop_token_ids structured_outputs t_max_predict_ms temperature_last tfs_z "
    "thinking thinking_budget timings_per_token top_a top_k transforms truncate_prompt_tokens typical_p usage "
    "use_beam_search xtc_probability xtc_threshold think ttl return_progress"
)
REQUEST_PARAMETERS: Final = frozenset(f"{_OPENAI} {_OTHERS}".split())
"""Of chat completions, as OpenAI and servers of the same interface name them."""

_MEANT_AS_ADDRESS: Final = frozenset(
    [
        "address",
        "api_url",
        "base",
        "baseurl",
        "base_uri",
        "endpoint",
        "host",
        "openai_api_base",
        "openai_base_url",
        "server",
        "server_url",
        "url",
    ]
)


def check_parameters(parameters: Mapping[str, object], own: Iterable[str]) -> None:
    """Raises UsageError for a request parameter that no known server has. own: keywords that it may have meant."""
    for name in parameters:
        if name not in REQUEST_PARAMETERS:
            meant = ["base_url"] if name.lower() in _MEANT_AS_ADDRESS else None
            near = meant or get_close_matches(name, [*own, *REQUEST_PARAMETERS], n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"{name!r} is no setting, and no request parameter that is known; {hint}"
                f"extra_body={{{name!r}: ...}} sends it to the server anyway"
            )


def check_addresses(parameters: Mapping[str, object]) -> None:
    """For parameters that are passed on: raises UsageError for an address under a name that would be ignored."""
    for name in parameters:
        if name.lower() in _MEANT_AS_ADDRESS:
            raise UsageError(
                f"{name!r} is no setting; the address of a server is given as api_base or base_url"
            )


def one_address(**given: object) -> str | None:
    """The address of a server, which may be given under several names; None where it is under none.

    Raises UsageError for an empty one, which is a variable that was not set, and for two that differ.
    """
    found: dict[str, str] = {}
    for name, address in given.items():
        if address is None:
            continue
        if not isinstance(address, str) or not address.strip():
            raise UsageError(
                f"{name} is an address such as http://localhost:8000/v1, not {address!r:.100}; leave it out for "
                f"the provider's own"
            )
        found[name] = address
    if len(set(found.values())) > 1:
        raise UsageError(f"{' and '.join(found)} name different addresses; they mean the same, so give one")
    return next(iter(found.values()), None)
