"""Options as JSON, and its schema, by pydantic. Loaded where JSON is read, never in a jail or a zygote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from cenote_security.errors import UsageError
from cenote_security.options import Definition, Options, cached_by_class, definition, definitions
from cenote_security.problems import Problems

T = TypeVar("T", bound=Options)


def read(kind: type[T], text: str | bytes) -> T:
    """Raises UsageError with all that is wrong: the sentences of the constructor."""
    wrong = Problems()
    try:
        read: T = _adapter(kind).validate_json(text)
        return read
    except ValidationError as error:
        found = {_refusal(kind, each): None for each in _telling(error.errors(include_url=False))}
        for sentence in found:
            wrong.note(UsageError(sentence))
    wrong.raise_all()  # not in the handler: what pydantic says shows its input, which may be a secret
    raise AssertionError("what pydantic refuses has a reason")


def write(options: Options) -> str:
    return json.dumps(_data(options))


def _data(value: object) -> object:
    """Plain data; written without pydantic, which takes no read-only view of a dictionary."""
    if isinstance(value, Options):
        for known in definitions(type(value)):
            if known.option.is_secret and getattr(value, known.name):
                raise UsageError(
                    f"{known.label} is secret, and JSON is for anybody to read; write the options without it, and "
                    "add it where they are read"
                )
    if is_dataclass(value):
        return {each.name: _data(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: _data(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return list(map(_data, value))
    return str(value) if isinstance(value, PurePath) else value


def schema(kind: type[Options]) -> dict[str, Any]:
    return _adapter(kind).json_schema()


@cached_by_class
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


_OTHER_TYPES: Final = frozenset({"literal_error", "dataclass_type", "none_required"})
"""What pydantic says besides of a value that may be of several types, and is a wrong one of one of them."""


def _telling(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """The errors, without those about types that the value was not meant to have."""
    told = {each["loc"][0] for each in errors if each["loc"] and each["type"] not in _OTHER_TYPES}
    return [
        each
        for each in errors
        if not each["loc"] or each["type"] not in _OTHER_TYPES or each["loc"][0] not in told
    ]


def _refusal(kind: type[Options], error: ErrorDetails) -> str:
    """In one line: the option, its bound, what to write."""
    if error["type"] in ("json_invalid", "json_type"):
        return f"no JSON: {error['ctx']['error']}" if "ctx" in error else "no JSON"
    cause = error.get("ctx", {}).get("error")
    where, known, last = _path(kind, error["loc"])
    if isinstance(cause, UsageError):
        return f"{where}: {cause}" if where else str(cause)
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown(last, error["loc"][-1], where)
    if known is None:
        return f"options are an object, not a {type(error['input']).__name__}"
    if error["type"] == "missing":
        return f"{where} is missing: it is {known.wanted}"
    # Of an item of a list or mapping, the sentence is about the whole.
    return known.refusal(error["input"]).replace(known.name, where.rpartition("[")[0] or where, 1)


def _path(kind: type[Options], loc: tuple[int | str, ...]) -> tuple[str, Definition | None, type[Options]]:
    """What is wrong, such as `network.rate`; its definition; and the class that has it."""
    where, known = "", None
    for step in loc:
        if isinstance(step, int):
            where += f"[{step}]"
        elif (found := _known(kind, step)) is not None:
            where, known = f"{where}.{step}" if where else step, found
            kind = next(iter(found.options_classes), kind)
    return where, known, kind


def _known(kind: type[Options], name: str) -> Definition | None:
    try:
        return definition(kind, name)
    except UsageError:
        return None


def _unknown(kind: type[Options], name: object, where: str) -> str:
    try:
        definition(kind, str(name))
    except UsageError as error:
        return f"{where}: {error}" if where else str(error)
    raise AssertionError("it is known")
