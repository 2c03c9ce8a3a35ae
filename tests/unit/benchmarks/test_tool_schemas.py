"""Tools as JSON schemas."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from benchmarks.tokens.json_style import without_empty
from benchmarks.tokens.retail_desk import make_retail_desk
from benchmarks.tokens.tool_schemas import tool_schemas, value_schema


def cancel(order_id: str, reason: Literal["late", "wrong"], item_ids: list[int]) -> str:
    """Cancel it.

    Only once. Then
    never again.

    Args:
        order_id: Number with #.
        reason: Why: in one word.
        item_ids: Which.
    """
    return order_id + reason + str(item_ids)


def test_a_full_schema_has_all_that_the_docstring_says() -> None:
    """Description in one line, a description for each parameter, enums and lists as such."""
    [schema] = json.loads(tool_schemas([cancel], trimmed=False))
    assert {
        "type": "function",
        "function": {
            "name": "cancel",
            "description": "Cancel it. Only once. Then never again.",
            "parameters": {
                "type": "object",
                "properties": {
                    "order_id": {"type": "string", "description": "Number with #."},
                    "reason": {
                        "type": "string",
                        "enum": ["late", "wrong"],
                        "description": "Why: in one word.",
                    },
                    "item_ids": {"type": "array", "items": {"type": "integer"}, "description": "Which."},
                },
                "required": ["order_id", "reason", "item_ids"],
            },
        },
    } == schema


def test_a_trimmed_schema_has_one_line_and_bare_parameters() -> None:
    """Types stay, descriptions are removed."""
    [schema] = json.loads(tool_schemas([cancel], trimmed=True))
    assert "Cancel it." == schema["function"]["description"]
    assert {"type": "string"} == schema["function"]["parameters"]["properties"]["order_id"]


def test_every_parameter_of_the_retail_tools_is_described() -> None:
    """The full schemas are complete: sixteen tools, no parameter without a description."""
    schemas = json.loads(tool_schemas(make_retail_desk().tools, trimmed=False))
    parameters = [p for s in schemas for p in s["function"]["parameters"]["properties"].values()]
    assert 16 == len(schemas)
    assert all(parameter["description"] for parameter in parameters)


def test_an_unknown_type_is_refused() -> None:
    """An empty schema would make JSON calling look cheaper than it is."""
    with pytest.raises(TypeError, match="bytes"):
        value_schema(bytes)


def test_compact_results_leave_out_what_is_empty() -> None:
    """None and empty lists are removed at any depth; zero, False and empty text stay."""
    assert {"a": 0, "b": False, "c": "", "d": [{"e": 1}]} == without_empty(
        {"a": 0, "b": False, "c": "", "d": [{"e": 1, "f": None}], "g": [], "h": None}
    )
