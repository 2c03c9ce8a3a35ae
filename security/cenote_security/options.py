"""Options that a user sets. Each is defined once: a field of a frozen dataclass, with its bounds, unit and help.

Checks, JSON, its schema, command-line flags, messages and tables of documents are derived from that field. What
pydantic needs to know lies in the field's metadata under pydantic's own names, so that it reads a definition as it
stands; it is loaded when JSON is read or a schema is asked for. To make a default policy takes a microsecond for
each option, and importing pydantic a tenth of a second, so a constructor checks without it.

Sizes in bytes are read as people write them: `"512MiB"`, `"1.5 GB"`.
"""

from __future__ import annotations

import functools
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    NoReturn,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from cenote_security.errors import UsageError
from cenote_security.printable import shown_size
from cenote_security.problems import Problems

__all__ = ["Definition", "Option", "Options", "Size", "check_option", "definition", "definitions", "option"]


Size = int | str

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip
_SIZE = re.compile(r"\s*+(\d+(?:\.\d+)?)\s*+([A-Za-z]*)\s*+")


def parse_size(size: Size) -> int:
    """Bytes in a size such as `2 * 2**30`, `"512MiB"` or `"1.5 GB"`.

    Raises UsageError for anything else, negative numbers included.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise UsageError(f"a size cannot be negative: {size}")
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None or match[2].upper() not in _UNITS:
        raise UsageError(f'not a size: {size!r}; write bytes as an int, or e.g. "512MiB", "2GB"')
    return int(float(match[1]) * _UNITS[match[2].upper()])


R = TypeVar("R")

_KEY: Final = "option"
_SHOWN: Final = 200
"""Characters of a wrong value that an error shows."""

_ABSURD: Final = 2**60
"""Bytes that no machine has: a bound above it is the kernel's, and says nothing to a user."""


@dataclass(
    frozen=True, kw_only=True, eq=False, repr=False
)  # each method that is made costs an import its time
class Option:
    """What is known of an option besides its name, type and default.

    at_least, above, at_most: bounds, each for numbers and sizes. unit: "bytes" for a size, "seconds", or a plural.
    none: what None means, or 0 where there is no None, such as "no limit". why: of a bound. valid: more that must
    hold of a right value; wanted: what is said of one, where the type does not say it; example: one, as code.
    flag, metavar: its name and its value's on a command line; no flag where there is none. flag_scale: what one of it
    is there.
    wire: its name in a message, where that differs; is_inverted: there True is False; is_later: messages without it
    are older, and mean its default.
    weakest_first: of words, how much each forbids. forbids: True allows less than False. opens_nothing: no value of
    it allows more than another. tenants_at_most, not_for_tenants: what tenants of a platform may not have.
    is_secret: no message shows a value.
    """

    help: str
    unit: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    none: str = ""
    example: str = ""
    why: str = ""
    wanted: str = ""
    valid: Callable[[Any], bool] | None = None
    flag: str = ""
    metavar: str = ""
    flag_scale: float = 1
    wire: str = ""
    is_inverted: bool = False
    is_later: bool = False
    weakest_first: tuple[str, ...] = ()
    forbids: bool = False
    opens_nothing: bool = False
    tenants_at_most: float | None = None
    not_for_tenants: tuple[str, ...] = ()
    is_secret: bool = False


def cached_by_class(function: Callable[[type[Any]], R]) -> Callable[[type[Any]], R]:
    """Its results are computed once for each class."""
    return functools.cache(function)  # type: ignore[return-value]  # mypy takes classes for unhashable


def about(default_factory: Any = MISSING, **facts: Any) -> dict[str, Any]:
    """Metadata of a field that is an option. facts: of `Option`."""
    known = Option(**facts)
    extra: dict[str, Any] = {"unit": known.unit} if known.unit else {}
    described: dict[str, Any] = {_KEY: known, "description": known.help, "json_schema_extra": extra}
    if known.unit == "bytes":  # a size may be written as text, which has no order
        bounds, into = {"minimum": known.at_least, "maximum": known.at_most}, extra
    else:
        bounds, into = {"ge": known.at_least, "gt": known.above, "le": known.at_most}, described
    into |= {name: bound for name, bound in bounds.items() if bound is not None}
    if default_factory is not MISSING:
        extra["default"] = default_factory()
    return described


def option(
    default: Any = MISSING, /, *, default_factory: Any = MISSING, is_hashed: bool = True, **facts: Any
) -> Any:
    """A field of a frozen dataclass that is an option with a default. facts: of `Option`.

    One without a default is `field(metadata=about(...))`: type checkers take every other call for a default.
    """
    hashed = None if is_hashed else False
    if default_factory is not MISSING:
        return field(default_factory=default_factory, hash=hashed, metadata=about(default_factory, **facts))
    return field(default=default, hash=hashed, metadata=about(**facts))


class Options:
    """Base of the frozen dataclasses whose fields are options.

    Their `__post_init__` begins with `self.checked()`, notes what else is wrong, and ends with `raise_all()`.
    """

    __slots__ = ()
    whose: ClassVar[str] = ""
    """What an error puts before the name of an option, such as "a budget's"."""
    # pydantic's own: JSON is taken as it is written, and an unknown name is refused.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    def checked(self) -> Problems:
        """Brings each value into its plain form (sizes in bytes, lists as tuples). Gives all that are wrong."""
        wrong = Problems()
        for name, default, plain_default in _defaults(type(self)):
            value = getattr(self, name)
            if (
                value is default
                or value is plain_default
                or (default is dict and type(value) is dict and not value)
            ):
                plain = plain_default
            else:
                try:
                    plain = definition(type(self), name).plain(value)
                except UsageError as error:
                    wrong.note(error)
                    continue
            if plain is not value:
                object.__setattr__(self, name, plain)
        return wrong

    @classmethod
    def of(cls, other: object) -> Self:
        """The options of this class, as another object has them under the same names."""
        return cls(**{each.name: getattr(other, each.name) for each in _fields(cls)})

    @classmethod
    def from_changes(cls, changes: Mapping[str, Any]) -> Self:
        """What `changes` gave, in another process that trusts this one: nothing is checked again."""
        made = cls.__new__(cls)
        for name, _, plain_default in _defaults(cls):
            object.__setattr__(made, name, changes.get(name, plain_default))
        return made

    def changes(self) -> dict[str, Any]:
        """The options that are not as by default, in their plain form."""
        return {
            name: value
            for name, _, plain_default in _defaults(type(self))
            if (value := getattr(self, name)) is not plain_default and value != plain_default
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Raises UsageError with all that is wrong with it, as the constructor does."""
        from cenote_security import option_json

        return option_json.read(cls, text)

    def to_json(self) -> str:
        """What `from_json` reads."""
        from cenote_security import option_json

        return option_json.write(self)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema 2020-12, as OpenAPI 3.1 and tool descriptions have it."""
        from cenote_security import option_json

        return option_json.schema(cls)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Definition:
    """An option with its name, type and default. hint: the resolved annotation. whose: such as "a budget's"."""

    name: str
    hint: Any
    default: Any
    option: Option
    whose: str = ""

    @property
    def parts(self) -> tuple[Any, ...]:
        """The types of which a value has one."""
        return get_args(self.hint) if get_origin(self.hint) in (Union, types.UnionType) else (self.hint,)

    @property
    def is_size(self) -> bool:
        return self.option.unit == "bytes" and str in self.parts

    @property
    def is_optional(self) -> bool:
        return type(None) in self.parts

    @property
    def choices(self) -> tuple[str, ...]:
        """The words of an option that is one of several words only."""
        return get_args(self.hint) if get_origin(self.hint) is Literal else ()

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def described(self) -> str:
        """What a right value is, for documents."""
        return f"one of {either(self.choices)}" if self.choices else self.wanted

    @property
    def is_list(self) -> bool:
        return any(get_origin(part) in (tuple, Sequence) for part in self.parts)

    @property
    def options_classes(self) -> list[type[Options]]:
        """Classes of options that a value of this option may be, or may be a list of."""
        return _classes(self.hint)

    def plain(self, value: object) -> Any:
        """A right value in its plain form. Raises UsageError."""
        if self.is_size and value is not None:
            try:
                value = parse_size(value)  # type: ignore[arg-type]
            except UsageError:
                self.refuse(value)
        if isinstance(value, float) and int in self.parts and value.is_integer():
            value = int(value)
        if not any(_is_a(part, value) for part in self.parts):
            self.refuse(value)
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and not self._is_within_bounds(value)
        ):
            self.refuse(value)
        if self.option.valid is not None and value is not None and not self.option.valid(value):
            self.refuse(value)
        if isinstance(value, list):
            return tuple(value)
        return types.MappingProxyType(dict(value)) if isinstance(value, Mapping) else value

    def is_right(self, value: object) -> bool:
        """Whether the option can have this value."""
        try:
            self.plain(value)
        except UsageError:
            return False
        return True

    def refuse(self, value: object) -> NoReturn:
        """Raises UsageError with what it is to be instead."""
        raise UsageError(self.refusal(value))

    @property
    def label(self) -> str:
        """The option's name in errors."""
        return f"{self.whose} {self.name}".lstrip()

    def refusal(self, value: object) -> str:
        """One line: the option, its bound, the value, and what to write."""
        given = repr(value) if self._may_be_shown(value) else f"what was given, a {type(value).__name__}"
        if len(given) > _SHOWN:
            given = f"{given[:_SHOWN]}..."
        why = f": {why}" if (why := self._why(value)) else ""
        if self.choices:
            return f"unknown {self.label} {given}; use {either(self.choices)}{why}"
        return f"{self.label} is {self.wanted}, not {given}{why}"

    @property
    def holds_secrets(self) -> bool:
        """Whether a value of it is a secret, or has one in it."""
        return self.option.is_secret or any(
            known.holds_secrets for kind in self.options_classes for known in definitions(kind)
        )

    def _may_be_shown(self, value: object) -> bool:
        """A word where options with a secret in them were wanted is none of these."""
        return not self.holds_secrets or (
            not self.option.is_secret and isinstance(value, str | int | float | None)
        )

    def _why(self, value: object) -> str:
        most = self.option.at_most
        if isinstance(value, int) and self.is_size and most is not None and value > most:
            return "no machine has so many bytes" if most >= _ABSURD else ""
        return self.option.why

    @property
    def wanted(self) -> str:
        """What a right value is."""
        text = self.option.wanted or self._wanted()
        if self.option.example:
            text += f", such as {self.option.example}"
        return f"{text}, or None for {self.option.none}" if self.is_optional and self.option.none else text

    def _wanted(self) -> str:
        known = self.option
        kind = next(part for part in self.parts if part is not type(None))
        if self.is_size or known.unit == "bytes":
            least = f" of at least {shown_size(int(known.at_least))}" if known.at_least else ""
            most = (
                f", at most {shown_size(int(known.at_most))}"
                if known.at_most and known.at_most < _ABSURD
                else ""
            )
            return (
                f'a size{least}{most} (bytes, or text such as "512MiB")'
                if self.is_size
                else f"bytes{least}{most}"
            )
        if kind is bool:
            return "True or False"
        if kind not in (int, float):
            return _PLURALS.get(get_origin(kind) or kind, f"a {getattr(kind, '__name__', kind)}")
        noun = "whole number" if kind is int else "number"
        of = f" of {known.unit}" if known.unit else ""
        if known.at_least is not None and known.at_most is not None:
            return f"a {noun}{of} from {_number(known.at_least)} to {_number(known.at_most)}"
        most = f" of at most {_number(known.at_most)}" if known.at_most is not None else ""
        if known.above == 0:
            return f"a positive {noun}{of}{most}"
        if known.at_least == 0 and known.none and not self.is_optional:
            return f"0 (for {known.none}) or more {known.unit}".rstrip()
        if known.at_least is not None:
            return f"a {noun}{of}, {_number(known.at_least)} or more"
        return f"a {noun}{of}{most}"

    def _is_within_bounds(self, number: float) -> bool:
        known = self.option
        return (
            (known.at_least is None or number >= known.at_least)
            and (known.above is None or number > known.above)
            and (known.at_most is None or number <= known.at_most)
        )


@cached_by_class
def definitions(kind: type) -> tuple[Definition, ...]:
    """The options of a dataclass, in their order; fields that are none of the user's are left out."""
    hints = get_type_hints(kind)
    return tuple(
        Definition(
            name=each.name,
            hint=hints[each.name],
            default=_default(each),
            option=each.metadata[_KEY],
            whose=getattr(kind, "whose", ""),
        )
        for each in _fields(kind)
    )


def definition(kind: type, name: str) -> Definition:
    """One of them. Raises UsageError for a name that is none, with the nearest one."""
    known = _by_name(kind)
    if name in known:
        return known[name]
    import difflib

    nearest = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {nearest[0]}?" if nearest else f"use {either(tuple(known))}"
    raise UsageError(f"there is no option {name!r:.100}; {meant}")


@cached_by_class
def _by_name(kind: type) -> dict[str, Definition]:
    return {each.name: each for each in definitions(kind)}


def _fields(kind: type) -> list[Field[Any]]:
    return [each for each in fields(kind) if _KEY in each.metadata]


def _default(of: Field[Any]) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


@cached_by_class
def _defaults(kind: type) -> tuple[tuple[str, Any, Any], ...]:
    """By name: what an option is by default, as written and in its plain form. Annotations are not looked at, which
    takes a millisecond for a policy: most of its options are as by default.
    """
    return tuple((each.name, *_written_and_plain(each)) for each in _fields(kind))


def _written_and_plain(of: Field[Any]) -> tuple[Any, Any]:
    if of.default_factory is dict:
        return dict, types.MappingProxyType({})
    if isinstance(of.default, str) and of.metadata[_KEY].unit == "bytes":
        return of.default, parse_size(of.default)
    return of.default, of.default


def check_option(kind: type, name: str, value: object) -> None:
    """Raises UsageError for a value that an option of this class cannot have."""
    definition(kind, name).plain(value)


def _classes(hint: Any) -> list[type[Options]]:
    """Those of options that a value, or an item of it, may be of."""
    if isinstance(hint, type) and issubclass(hint, Options):
        return [hint]
    return [found for part in get_args(hint) for found in _classes(part)]


def _is_a(part: Any, value: object) -> bool:
    """Whether a value has the type that an annotation says. A string is none of strings: `preload="numpy"` would mean
    five modules of one letter.
    """
    if part is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    if part is int:
        return isinstance(value, int) and not isinstance(value, bool)
    origin = get_origin(part)
    if origin is None:
        return isinstance(value, part)
    if origin is Literal:
        return isinstance(value, str) and value in get_args(part)
    items = get_args(part)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _is_a(items[0], key) and _is_a(items[1], each) for key, each in value.items()
        )
    assert origin in (Sequence, tuple), "options have no other types"
    return isinstance(value, list | tuple) and all(_is_a(items[0], each) for each in value)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no `float` can hold
        return False


_PLURALS: Final[Mapping[Any, str]] = {
    Sequence: "a list",
    tuple: "a list",
    Mapping: "a mapping",
    str: "a text",
}


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


def either(words: Sequence[str]) -> str:
    """`a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
