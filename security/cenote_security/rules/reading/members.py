"""Reads members: attributes, items, what format strings and patterns reach, of values known and unknown."""

from __future__ import annotations

import ast
import re
import sys
import unicodedata

from cenote_security.rules.reading import constant_folding
from cenote_security.rules.reading.abstract_values import (
    BUILTINS,
    Bound,
    Closure,
    Const,
    Either,
    Items,
    Lookup,
    Table,
    Value,
    merge_all,
    options,
    paths,
)
from cenote_security.rules.reading.known_names import (
    ASSUMED_MODULES,
    PASSED_THROUGH,
    PASSED_THROUGH_BY_STDLIB,
    USUAL_ALIASES,
    canonical,
)
from cenote_security.rules.reading.reader import CodeReader

LONGEST_PATH = 200
"""Characters of a dotted name that is followed; long method chains end up unknown."""

MOST_ELEMENTS = 64
"""Elements of a literal list that a loop over it is read with; one more, unknown, stands for the rest."""

JSON_KEYS = frozenset({"__class__", "__module__", "__name__", "__type__"})
"""Keys of ordinary data, when nothing is known of what they are looked up in."""

NAMESPACES = ("globals()", "locals()")
_FIELD = re.compile(r"\{([^{}]*)\}")
_STEP = re.compile(r"\.(\w+)|\[(\w+)\]")


def load_name(reader: CodeReader, node: ast.AST, name: str) -> Value:
    """What a name means where it is read."""
    value = reader.lookup(name)
    if value is Lookup.UNBOUND:
        value = _unbound(reader, node, name)
    if value is not None:
        reader.mention(node, value)
    if name[:2] == "__":
        _notice(reader, node, None, name, "")
    return value


def _unbound(reader: CodeReader, node: ast.AST, name: str) -> Value:
    value = BUILTINS.get(name)
    if reader.stars and (value is None or name in reader.names_watched):
        found = (_path_member(reader, node, module, name, load=False) for module in reader.stars)
        return merge_all((value, *found))
    if value is not None:
        return value
    if name == "__name__":
        return Const("__main__")
    if name in ASSUMED_MODULES or name in reader.watch.roots or name in reader.watch.methods:
        value = name
    else:
        value = USUAL_ALIASES.get(name)
    if value is not None and name not in reader.watch.methods:
        reader.modules.add(value)
    return value


def access(
    reader: CodeReader, node: ast.AST, owner: Value, name: str, *, token: str = "", load: bool = True
) -> Value:
    """An attribute is read (or, without `load`, written or deleted), by whatever syntax or function."""
    if name in reader.names_watched or name[:1] == "_":
        if not name.isascii():
            name = unicodedata.normalize("NFKC", name)
        _notice(reader, node, owner, name, token)
    return member(reader, node, owner, name, load=load)


def _notice(reader: CodeReader, node: ast.AST, owner: Value, name: str, token: str) -> None:
    watch = reader.watch
    if name in watch.attributes or (watch.hidden and name[:1] == "_"):
        module = next((path for path in paths(owner) if _in_module(reader, path)), "")
        reader.report("attribute", name, node, owner=module, token=token)


def _in_module(reader: CodeReader, path: str) -> bool:
    """Whether the path is a module or something in one, such as a class; not what a call returned."""
    return path in reader.modules or ("(" not in path and path.partition(".")[0] in reader.modules)


def member(reader: CodeReader, node: ast.AST, owner: Value, name: str, *, load: bool = True) -> Value:
    """What the member is, once the rules know that it was reached."""
    if owner is None:
        return _unknown_member(reader, node, name)
    if type(owner) is str:
        return _path_member(reader, node, owner, name, load=load)
    if type(owner) is Either:
        return merge_all(tuple(member(reader, node, option, name, load=load) for option in owner.options))
    if type(owner) is Const or type(owner) is Items or type(owner) is Table:
        return Bound(owner, name)
    if type(owner) is Closure and name == "__globals__":
        return "globals()"
    return _unknown_member(reader, node, name)


def _unknown_member(reader: CodeReader, node: ast.AST, name: str) -> Value:
    if name == "__builtins__":
        return "builtins"
    if name[:1] == "_" and name[1:] in PASSED_THROUGH:
        return reader.import_module(node, name[1:])
    value = reader.fields.get(name)
    if value is not None:
        reader.mention(node, value)
    return value


def _path_member(reader: CodeReader, node: ast.AST, owner: str, name: str, *, load: bool) -> Value:
    if name[:2] == "__":
        known = _dunder_of_path(owner, name)
        if known is not None:
            return known
    if owner in NAMESPACES:
        return None
    if _is_passed_through(reader, owner, name.lstrip("_")):
        return reader.import_module(node, name.lstrip("_"))
    if len(owner) > LONGEST_PATH:
        return None
    path = canonical(f"{owner}.{name}")
    if name in reader.names_watched:
        _watched_member(reader, node, path, load=load)
    if path in constant_folding.NAMED_CONSTANTS:
        return Const(constant_folding.NAMED_CONSTANTS[path])
    return path


def _is_passed_through(reader: CodeReader, owner: str, name: str) -> bool:
    if name not in PASSED_THROUGH and name not in PASSED_THROUGH_BY_STDLIB:
        return False
    if "(" in owner or owner == name:  # the class in `socket.socket` is no module
        return False
    root = owner.partition(".")[0]
    return root in reader.modules and (name in PASSED_THROUGH or root in sys.stdlib_module_names)


def _dunder_of_path(owner: str, name: str) -> str | None:
    if name == "__dict__":
        return owner
    if name == "__builtins__" or (name == "__self__" and owner.startswith("builtins.")):
        return "builtins"
    return "globals()" if name == "__globals__" else None


def _watched_member(reader: CodeReader, node: ast.AST, path: str, *, load: bool) -> None:
    if path in reader.watch.modules:
        reader.report("module", path, node)
        reader.modules.add(path)
    if load:
        reader.mention(node, path)


def item(reader: CodeReader, node: ast.AST, owner: Value, key: Value) -> Value:
    """What `owner[key]` is."""
    if type(owner) is Either:
        return merge_all(tuple(item(reader, node, option, key) for option in owner.options))
    if type(key) is Either:
        return merge_all(tuple(item(reader, node, owner, option) for option in key.options))
    if type(key) is not Const:
        return _unreadable_item(reader, node, owner)
    if type(owner) is Table:
        return owner.entries.get(key.value) if isinstance(key.value, str | int | bytes) else None
    if type(owner) is Items or type(owner) is Const:
        return constant_folding.subscript(owner, key.value)
    return _named_item(reader, node, owner, key.value) if isinstance(key.value, str) else None


def _unreadable_item(reader: CodeReader, node: ast.AST, owner: Value) -> Value:
    if owner == "sys.modules":
        reader.report("unreadable module", owner, node)
    elif owner == "builtins" or reader.is_module(owner):
        reader.report("unreadable member", str(owner), node)
    elif type(owner) is Items:
        return merge_all(tuple(value for value in owner.values if type(value) is not Const))
    elif type(owner) is Table:
        return merge_all(tuple(value for value in owner.entries.values() if type(value) is not Const))
    return None


def _named_item(reader: CodeReader, node: ast.AST, owner: Value, key: str) -> Value:
    if owner == "sys.modules":
        return reader.import_module(node, key)
    if owner in NAMESPACES:
        return load_name(reader, node, key)
    if key == "__builtins__":
        _notice(reader, node, owner, key, "")
        return "builtins"
    if type(owner) is str and "(" not in owner:
        return access(reader, node, owner, key)
    if key[:2] == "__" and key not in JSON_KEYS:
        _notice(reader, node, owner, key, "")
    return reader.fields.get(key)


def format_fields(reader: CodeReader, node: ast.AST, text: str) -> None:
    """Attributes that a format string reads: `"{0.__class__}"`."""
    for replaced in _FIELD.findall(text):
        for attribute, key in _STEP.findall(replaced):
            name = attribute or key
            if name in reader.watch.attributes or (name[:2] == "__" and reader.watch.hidden):
                reader.report("attribute", name, node)
            if attribute[:1] == "_" and attribute[1:] in PASSED_THROUGH:
                reader.import_module(node, attribute[1:])


def elements(value: Value) -> Value:
    """What iterating over the value gives, merged."""
    found: list[Value] = []
    for option in options(value):
        if type(option) is Items:
            found.extend(option.values)
        elif type(option) is Table:
            found.extend(Const(key) for key in option.entries)
        else:
            found.append(None)
    if len(found) > MOST_ELEMENTS:
        found = [*found[:MOST_ELEMENTS], None]
    return merge_all(tuple(found))
