"""JSON schemas of tools, made from Python signatures and docstrings as tool-calling frameworks do."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Tool = Callable[..., object]
JsonSchema = dict[str, Any]  # Any: JSON

_SCALARS: dict[object, JsonSchema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
}


def tool_schemas(tools: Sequence[Tool], *, trimmed: bool) -> str:
    """The `tools` of a request as its JSON text.

    Trimmed: the first line of each description only, and parameters without descriptions.
    """
    return json.dumps([_tool_schema(tool, trimmed) for tool in tools], separators=(",", ":"))


def _tool_schema(tool: Tool, trimmed: bool) -> JsonSchema:
    summary, details, arguments = split_docstring(inspect.getdoc(tool) or "")
    hints = get_type_hints(tool)
    names = list(inspect.signature(tool).parameters)
    properties = {name: dict(value_schema(hints[name])) for name in names}
    if not trimmed:
        for name in names:
            properties[name]["description"] = arguments[name]
    function = {
        "name": tool.__name__,
        "description": summary if trimmed or not details else f"{summary} {details}",
        "parameters": {"type": "object", "properties": properties, "required": names},
    }
    return {"type": "function", "function": function}


def value_schema(hint: object) -> JsonSchema:
    """Schema of a parameter's type. Raises TypeError for types that no tool of the benchmark takes."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if get_origin(hint) is list:
        return {"type": "array", "items": value_schema(get_args(hint)[0])}
    if get_origin(hint) in (Union, types.UnionType):
        return {"anyOf": [value_schema(choice) for choice in get_args(hint)]}
    raise TypeError(f"no JSON schema for {hint!r}")


def split_docstring(text: str) -> tuple[str, str, dict[str, str]]:
    """First line, further text in one line, and the descriptions under `Args:`."""
    head, _, tail = text.partition("\nArgs:\n")
    summary, _, details = head.partition("\n")
    lines = (line.strip().partition(": ") for line in tail.splitlines() if line.strip())
    return summary.strip(), " ".join(details.split()), {name: meaning for name, _, meaning in lines}
