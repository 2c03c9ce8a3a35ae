"""The OpenAPI 3.1 document of Cenote's own HTTP interface, generated from its operations."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from cenote.doors.http_api import OPERATIONS, HttpOperation

_Mode = Literal["validation", "serialization"]

_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            "required": ["type", "message"],
        }
    },
    "required": ["error"],
}


@cache
def openapi() -> dict[str, Any]:
    """The document, as JSON data."""
    wanted: list[tuple[int, _Mode, TypeAdapter[Any]]] = [
        (index, mode, TypeAdapter(kind))
        for index, operation in enumerate(OPERATIONS)
        for mode, kind in _kinds(operation)
        if kind is not None and not isinstance(kind, str)
    ]
    schemas, shared = TypeAdapter.json_schemas(wanted, ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for index, operation in enumerate(OPERATIONS):
        path = paths.setdefault(operation.path.replace(":path}", "}"), {})
        body, answer = schemas.get((index, "validation")), schemas.get((index, "serialization"))
        path[operation.method.lower()] = _described(operation, body, answer)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Cenote", "version": version("cenote")},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": shared.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kinds(operation: HttpOperation) -> tuple[tuple[_Mode, Any], tuple[_Mode, Any]]:
    return ("validation", operation.body), ("serialization", operation.answer)


def _described(operation: HttpOperation, body: Any, answer: Any) -> dict[str, Any]:
    names = [part[1:-1].removesuffix(":path") for part in operation.path.split("/") if part.startswith("{")]
    done = {"description": "done", **_content(operation.answer, answer)}
    for mime, what in operation.also.items():
        done["content"][mime] = {"schema": {"type": "string", "description": what}}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
        + [
            {"name": name, "in": "query", "description": what, "schema": {"type": "string"}}
            for name, what in operation.query.items()
        ],
        "responses": {
            str(operation.status): done,
            "default": {"description": "refused, with the reason", **_content(dict, _ERROR)},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, **_content(operation.body, body)}
    return described


def _content(kind: Any, schema: Any) -> dict[str, Any]:
    if kind is None:
        return {}
    mime = kind if isinstance(kind, str) else "application/json"
    return {"content": {mime: {"schema": schema if schema is not None else {}}}}
