"""Texts enter messages in one place: `cenote_proto/scalars.py`. Bypasses are found in the syntax trees."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

ROOT = Path(__file__).parents[3]
V1 = ROOT / "protos" / "cenote_proto" / "v1"
MODULES = {path.stem: importlib.import_module(f"cenote_proto.v1.{path.stem}") for path in V1.glob("*_pb2.py")}

CLEAN = frozenset(("make", "utf8_items", "utf8_text", "utf8_texts"))

NOT_MESSAGES = {
    "platform/cenote/gateway/teams/replay.py": frozenset({"notes"}),  # of a ReplayCursor
    "platform/cenote/gateway/teams/team_builder.py": frozenset({"add"}),  # of a Team
    "workers/cenote_worker/serving/relay.py": frozenset({"client"}),  # of a requested call
    "workers/cenote_worker/supervisor/worker_failover.py": frozenset({"news"}),  # of a running cell
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for root in ("platform", "workers", "security"):
        for path in sorted((ROOT / root).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "_pb2" in text:
                yield str(path.relative_to(ROOT)), ast.parse(text)


def all_kinds() -> Iterator[Descriptor]:
    for module in MODULES.values():
        for kind in module.DESCRIPTOR.message_types_by_name.values():
            yield from _with_inner(kind)


def _with_inner(kind: Descriptor) -> Iterator[Descriptor]:
    yield kind
    for inner in kind.nested_types:
        yield from _with_inner(inner)


def is_text(field: FieldDescriptor) -> bool:
    """A text, a list of texts, a mapping of texts."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return any(is_text(each) for each in field.message_type.fields)
    return bool(field.type == FieldDescriptor.TYPE_STRING)


@cache
def always_text() -> frozenset[str]:
    """Names of fields that are texts wherever a message has them."""
    fields = [field for kind in all_kinds() for field in kind.fields]
    return frozenset(each.name for each in fields if is_text(each)) - {
        each.name for each in fields if not is_text(each)
    }


class Reader(ast.NodeVisitor):
    """Finds where an unchecked text goes into a message. other: names of methods that are not a message's."""

    def __init__(self, tree: ast.Module, other: frozenset[str]) -> None:
        self.found: list[str] = []
        self._other = other
        self._imported = imported_names(tree)
        self._kinds: dict[str, Descriptor] = {}
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self._kinds = self._kinds, dict(self._kinds)
        for argument in (*node.args.args, *node.args.kwonlyargs):
            if argument.annotation is not None:
                self._learn(argument.arg, self._named(argument.annotation))
        self.generic_visit(node)
        self._kinds = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target, value in _pairs(node):
            if isinstance(target, ast.Name):
                self._learn(target.id, self._made(value))
            elif isinstance(target, ast.Subscript):
                self._check(target.value, value, node)
            else:
                self._check(target, value, node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "setattr":
            self.found.append(ast.unparse(node))
        kind = self._named(node.func)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if kind is not None:
            texts = {field.name for field in kind.fields if is_text(field)}
            self._check_fields(node, texts)
        elif method == "add" and method not in self._other:
            self._check_fields(node, always_text())
        elif method in ("append", "extend", "update") and node.args:
            assert isinstance(node.func, ast.Attribute)
            self._check(node.func.value, node.args[0], node)

    def _check_fields(self, node: ast.Call, texts: Set[str]) -> None:
        given = [each.value for each in node.keywords if each.arg is None or each.arg in texts]
        if not all(map(is_clean, given)):
            self.found.append(ast.unparse(node))

    def _check(self, target: ast.expr, value: ast.expr, node: ast.AST) -> None:
        if not isinstance(target, ast.Attribute) or is_clean(value):
            return
        field = self._field(target)
        if is_text(field) if field is not None else self._is_likely(target):
            self.found.append(ast.unparse(node))

    def _is_likely(self, target: ast.Attribute) -> bool:
        """Whether an object of unknown type is likely a message."""
        own = isinstance(target.value, ast.Name) and target.value.id == "self"
        return not own and target.attr in always_text() - self._other

    def _field(self, target: ast.Attribute) -> FieldDescriptor | None:
        kind = self._kind_of(target.value)
        return None if kind is None else kind.fields_by_name.get(target.attr)

    def _kind_of(self, node: ast.expr) -> Descriptor | None:
        if isinstance(node, ast.Name):
            return self._kinds.get(node.id)
        field = self._field(node) if isinstance(node, ast.Attribute) else None
        return None if field is None else field.message_type

    def _learn(self, name: str, kind: Descriptor | None) -> None:
        if kind is not None:
            self._kinds[name] = kind
        else:
            self._kinds.pop(name, None)

    def _made(self, value: ast.expr) -> Descriptor | None:
        if not isinstance(value, ast.Call):
            return None
        if isinstance(value.func, ast.Name) and value.func.id == "make" and value.args:
            return self._named(value.args[0])
        return self._named(value.func)

    def _named(self, node: ast.expr) -> Descriptor | None:
        """The message class that an expression names, such as `jail_pb2.Folder`."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        found: object = MODULES.get(node.id)
        if node.id in self._imported:
            found = getattr(MODULES[self._imported[node.id]], node.id)
        for part in reversed(parts):
            found = getattr(found, part, None)
        kind = getattr(found, "DESCRIPTOR", None)
        return kind if isinstance(kind, Descriptor) else None


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Message classes that are imported by their names, and their modules."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cenote_proto.v1."):
            module = str(node.module).rpartition(".")[2]
            found |= {alias.name: module for alias in node.names if module in MODULES}
    return found


def is_clean(value: ast.expr) -> bool:
    """Whether an expression is a constant, not a text, or has gone through `cenote_proto.scalars`."""
    match value:
        case ast.Constant():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in CLEAN
        case ast.Attribute():
            return "_pb2" in ast.unparse(value) or value.attr.isupper()
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return all(map(is_clean, items))
        case ast.IfExp(body=one, orelse=other):
            return is_clean(one) and is_clean(other)
    return False


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(target.elts)
            yield from zip(target.elts, values, strict=True)
        else:
            yield target, node.value


def test_every_text_of_a_message_goes_through_one_place() -> None:
    found = {name: Reader(tree, NOT_MESSAGES.get(name, frozenset())).found for name, tree in sources()}
    assert {} == {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "line",
    [
        "jail_pb2.HostError(type=name)",
        "jail_pb2.HostError(**facts)",
        "message.notices.add(name=name, author=author)",
        "reply.error.traceback = str(error)",
        "(reply.step, reply.traceback) = (number, text)",
        "message.nearest.extend(names)",
        "message.nearest.append(name)",
        "setattr(message, name, value)",
        "message = jail_pb2.HostError()\nmessage.type = name",
        "def fill(message: jail_pb2.Notice):\n    message.name = name",
        "def fill(reply: jail_pb2.Reply):\n    reply.executed.error.type = name",
        "def fill(order: job_pb2.JobDefinition):\n    order.variables[name] = ''\n    order.secrets.update(secrets)",
    ],
)
def test_the_rule_finds(line: str) -> None:
    assert Reader(ast.parse(line), frozenset()).found


@pytest.mark.parametrize(
    "line",
    [
        "make(jail_pb2.HostError, type=name)",
        "jail_pb2.HostError(type='RuntimeError')",
        "jail_pb2.HostReply(id=number)",
        "reply.error.traceback = utf8_text(str(error))",
        "def fill(message: jail_pb2.FileEntry):\n    message.name = name",
    ],
)
def test_the_rule_lets_pass(line: str) -> None:
    assert [] == Reader(ast.parse(line), frozenset()).found
