"""Texts enter messages in one place: `cenote_proto/scalars.py`. What goes past it is found in the syntax trees."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

ROOT = Path(__file__).parents[2]
V1 = ROOT / "protos" / "cenote_proto" / "v1"
MODULES = {path.stem: importlib.import_module(f"cenote_proto.v1.{path.stem}") for path in V1.glob("*_pb2.py")}

CLEANED = frozenset(("utf8_text", "utf8_texts", "make"))

NOT_MESSAGES = {
    # An object of another kind has a field of that name.
    "platform/cenote/gateway/teams/building.py": {"add"},  # of a Team
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for root in ("platform", "workers", "security"):
        for path in sorted((ROOT / root).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "_pb2" in text:
                yield str(path.relative_to(ROOT)), ast.parse(text)


@cache
def text_fields() -> frozenset[str]:
    """Of all messages: names of fields that are texts, lists of texts or mappings of texts."""
    found: set[str] = set()
    for module in MODULES.values():
        for kind in module.DESCRIPTOR.message_types_by_name.values():
            found |= {field.name for each in _with_inner(kind) for field in each.fields if _is_text(field)}
    return frozenset(found)


def _with_inner(kind: Descriptor) -> Iterator[Descriptor]:
    yield kind
    for inner in kind.nested_types:
        yield from _with_inner(inner)


def _is_text(field: FieldDescriptor) -> bool:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return any(_is_text(each) for each in field.message_type.fields)
    return bool(field.type == FieldDescriptor.TYPE_STRING)


def message_kind(node: ast.expr, imported: dict[str, str]) -> Descriptor | None:
    """The message class that an expression names, such as `jail_pb2.Folder`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    found: object = MODULES.get(node.id)
    if node.id in imported:
        found = getattr(MODULES[imported[node.id]], node.id)
    for part in reversed(parts):
        found = getattr(found, part, None)
    kind = getattr(found, "DESCRIPTOR", None)
    return kind if isinstance(kind, Descriptor) else None


def imported_names(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cenote_proto.v1."):
            module = str(node.module).rpartition(".")[2]
            found |= {alias.name: module for alias in node.names if module in MODULES}
    return found


def is_clean(value: ast.expr) -> bool:
    """Whether an expression is a constant, no text, or has gone through `cenote_proto.scalars`."""
    match value:
        case ast.Constant() | ast.JoinedStr(values=[ast.Constant()]):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in CLEANED
        case ast.Attribute():
            return "_pb2" in ast.unparse(value) or _is_enum(value)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return all(map(is_clean, items))
        case ast.IfExp(body=one, orelse=other):
            return is_clean(one) and is_clean(other)
    return False


def _is_enum(value: ast.Attribute) -> bool:
    return value.attr.isupper()


def past_the_door(tree: ast.Module, other: set[str]) -> Iterator[tuple[int, str]]:
    """Where a text goes into a message as it is: the line, and what stands there."""
    imported = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            kind = message_kind(node.func, imported)
            if kind is not None or _is_call_of(node, "add", other):
                texts = [each for each in node.keywords if each.arg in text_fields() or each.arg is None]
                if any(not is_clean(each.value) for each in texts):
                    yield node.lineno, ast.unparse(node)
            if _is_call_of(node, "extend", other) or _is_call_of(node, "append", other):
                assert isinstance(node.func, ast.Attribute)
                into = node.func.value
                if (
                    isinstance(into, ast.Attribute)
                    and into.attr in text_fields()
                    and not is_clean(node.args[0])
                ):
                    yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Assign):
            for target, value in _pairs(node):
                if isinstance(target, ast.Attribute) and target.attr in text_fields() - other:
                    root = ast.unparse(target.value)
                    if root != "self" and not is_clean(value):
                        yield node.lineno, ast.unparse(node)


def _is_call_of(node: ast.Call, name: str, other: set[str]) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == name and name not in other


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(target.elts)
            yield from zip(target.elts, values, strict=True)
        else:
            yield target, node.value


def test_every_text_of_a_message_goes_through_one_place() -> None:
    found = [
        f"{name}:{line}: {text}"
        for name, tree in sources()
        for line, text in past_the_door(tree, NOT_MESSAGES.get(name, set()))
    ]
    assert [] == found


@pytest.mark.parametrize(
    "line",
    [
        "jail_pb2.HostError(type=name)",
        "message.notices.add(name=name)",
        "reply.error.message = str(error)",
        "reply.error.type, reply.error.message = name, text",
        "message.nearest.extend(names)",
        "message.nearest.append(name)",
        "jail_pb2.HostError(**facts)",
    ],
)
def test_the_rule_finds(line: str) -> None:
    assert [line] == [text for _, text in past_the_door(ast.parse(line), set())] or "= (" in ast.unparse(
        ast.parse(line)
    )
