"""Options as messages and back, by descriptor: a field of the message and an option have the same name.

Differences are declared beside the option: its name in the message, and whether True is False there. None is an unset
field; so is a value that the field's type cannot hold, such as `"none"` for a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from google.protobuf.message import Message

from cenote_proto.scalars import utf8_text
from cenote_security.errors import UsageError
from cenote_security.options import Definition, Options, definitions

T = TypeVar("T", bound=Options)
M = TypeVar("M", bound=Message)


def fill_options(message: M, options: Options) -> M:
    """Sets all fields of the message that are options. Raises UsageError for values that no message can hold: text
    that is not valid UTF-8 would be sent as another variable, or another path.
    """
    for known, field in _pairs(type(options), message):
        value = getattr(options, known.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key, each in value.items():
                if isinstance(each, Options):
                    fill_options(getattr(message, field.name)[_text(key)], each)
                else:
                    getattr(message, field.name)[_text(key)] = _text(each)
        elif field.is_repeated and field.message_type is not None:
            for each in value:
                fill_options(getattr(message, field.name).add(), each)
        elif field.is_repeated:
            getattr(message, field.name).extend(map(_text, value))
        elif field.message_type is not None:
            if isinstance(value, Options):
                fill_options(getattr(message, field.name), value).SetInParent()
        elif value is not None:
            setattr(message, field.name, (not value) if known.option.is_inverted else _text(value))
    return message


def read_options(kind: type[T], message: Message, *, as_asked: bool = False) -> T:
    """as_asked: unset fields get the default, where zero or an empty text is not a valid value.

    Raises UsageError with all errors: the message is not trusted.
    """
    given: dict[str, Any] = {}
    for known, field in _pairs(kind, message):
        if field.has_presence and not message.HasField(field.name):
            continue
        value = _value(known, field, getattr(message, field.name))
        if not value and (
            known.option.is_later or (as_asked and not field.is_repeated and not known.is_right(value))
        ):
            continue
        given[known.name] = value
    return kind(**given)


def _value(known: Definition, field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].message_type is None:
            return dict(value)
        (kind,) = known.options_classes
        return {key: read_options(kind, each) for key, each in value.items()}
    if field.message_type is not None:
        (kind,) = known.options_classes
        return (
            tuple(read_options(kind, each) for each in value)
            if field.is_repeated
            else read_options(kind, value)
        )
    if field.is_repeated:
        return tuple(value)
    if known.option.is_inverted:
        return not value
    return None if not value and known.is_optional and not field.has_presence else value


def _pairs(kind: type[Options], message: Message) -> Iterator[tuple[Definition, Any]]:
    """The options that the message has fields for."""
    fields = message.DESCRIPTOR.fields_by_name
    for known in definitions(kind):
        if (field := fields.get(known.option.wire or known.name)) is not None:
            yield known, field


def _text(value: Any) -> Any:
    if isinstance(value, str) and value != utf8_text(value):
        raise UsageError(f"{value!a} is no text in UTF-8: a policy with it holds on this machine alone")
    return value
