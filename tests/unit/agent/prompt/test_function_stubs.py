"""Callables as one line."""

from __future__ import annotations

import functools
import typing
from enum import Enum
from typing import Annotated, Any, Literal, Optional, Union

import pytest

from cenote.agent.prompt.stubs import function_stub
from cenote.runtime.inject.injectables import Function


class Colour(Enum):
    RED = "red"


UserId = typing.NewType("UserId", str)


def documented(a: int, b: str = "x") -> list[str]:
    """Do a thing.

    Much more text.
    """


def plain(a, b=1, *args, c, d=None, **kwargs): ...


def typed(
    a: Optional[int],  # noqa: UP045
    b: Union[str, None],  # noqa: UP007
    c: typing.List[typing.Dict[str, Any]],  # noqa: UP006
    d: Literal["x", 2],
    e: Annotated[int, "positive"],
    f: Colour = Colour.RED,
    h: UserId = UserId("u"),
    i: typing.Callable[[int], str] = len,
    j: tuple[int, ...] = (),
    k: Literal[Colour.RED] = Colour.RED,
) -> None: ...


def late(a: Undefined) -> dict[str, Undefined]: ...  # noqa: F821


def defaults(b="long" * 20, c=float("nan"), d="line\nbreak"): ...


class Callable:
    """Called like a function."""

    def __call__(self, x: int) -> str: ...


async def fetch(url: str) -> bytes: ...


@functools.wraps(documented)
def wrapped(*args, **kwargs): ...


class BadRepr:
    def __repr__(self) -> str:
        raise ValueError


def bad(a=BadRepr()): ...  # noqa: B008


def test_a_function_is_one_line() -> None:
    """Name, typed parameters, return type, the first sentence of the description."""
    assert "documented(a: int, b: str = 'x') -> list[str]  # Do a thing" == function_stub(
        Function(documented)
    )


def test_a_description_takes_the_place_of_the_docstring() -> None:
    """It is written for the model, the docstring for people. Line breaks are removed."""
    stub = function_stub(Function(documented, "Say\n  this"))
    assert stub.endswith("  # Say this")
    assert "#" not in function_stub(Function(documented, include_doc=False))


def test_untyped_parameters_are_as_in_the_source() -> None:
    """Stars, keyword-only parameters, defaults."""
    assert "plain(a, b=1, *args, c, d=None, **kwargs)" == function_stub(Function(plain))
    assert "f(a, *, b=2)" == function_stub(Function(lambda a, *, b=2: 0, name="f"))


def test_what_can_not_be_evaluated_is_shown_as_written() -> None:
    """A name that only type checkers see is better than nothing."""
    assert "late(a: Undefined) -> dict[str, Undefined]" == function_stub(Function(late))


@pytest.mark.parametrize(
    "part",
    ["a: int | None", "b: str | None", "c: list[dict[str, Any]]", "d: 'x' | 2", "e: int", "f: Colour = Colour.RED",
     "h: str = 'u'", "i: Callable[[int], str] = <built-in function len>", "j: tuple[int, ...] = ()",
     "k: Colour.RED = Colour.RED", "-> None"],
)  # fmt: skip
def test_each_kind_of_annotation(part: str) -> None:
    """In the current notation."""
    assert part in function_stub(Function(typed))


def test_defaults_that_say_nothing_are_dots() -> None:
    """Long defaults, and failing reprs."""
    assert "b=..., c=nan, d='line\\nbreak'" in function_stub(Function(defaults))
    assert "bad(a=...)" == function_stub(Function(bad))


def test_callables_of_all_kinds() -> None:
    """Methods, instances, wrappers, partial functions, builtins, coroutine functions."""
    assert "call(x: int) -> str  # Called like a function" == function_stub(Function(Callable(), name="call"))
    assert "await fetch(url: str) -> bytes" == function_stub(Function(fetch))
    assert "documented(a: int, b: str = 'x') -> list[str]  # Do a thing" == function_stub(Function(wrapped))
    assert function_stub(Function(functools.partial(documented, 1), "d", name="p")).startswith(
        "p(b: str = 'x')"
    )
    assert "getattr(...)  # " in function_stub(Function(getattr, "Get"))


def test_long_descriptions_end_with_a_whole_sentence_or_word() -> None:
    """At 1,000 characters; a longer text belongs in a skill."""
    assert "# " + "x" * 1000 == function_stub(Function(fetch, "x" * 1000)).partition("  ")[2]
    assert function_stub(Function(fetch, "word " * 250)).endswith("word word ...")
    assert function_stub(Function(fetch, "One sentence. " * 80)).endswith("One sentence. ...")


DOCUMENTED = """Cancel a pending order, e.g. one that is late. If it is already processed or delivered,
it cannot be cancelled.

Args:
    order_id: Such as '#W0000000'.
"""


@pytest.mark.parametrize(
    ("doc", "sentence"),
    [
        (DOCUMENTED, "Cancel a pending order, e.g. one that is late"),
        ("Find what\n    goes on\n    over lines", "Find what goes on over lines"),
        ("Version 2.5 of it. More.", "Version 2.5 of it"),
        ("What is `x`? A name.", "What is `x`?"),
        ("Ask Dr. Who (see St. Ives). Then go.", "Ask Dr. Who (see St. Ives)"),
        ("Take one\nArgs:\n    a: b", "Take one"),
        ("Take one\n:param a: b", "Take one"),
        ("", ""),
    ],
)
def test_a_docstring_gives_its_first_sentence_whole(doc: str, sentence: str) -> None:
    """Regardless of its layout. The full prompt has all of it."""

    def target() -> None: ...

    target.__doc__ = doc
    assert f"target() -> None{sentence and f'  # {sentence}'}" == function_stub(Function(target))
    whole = function_stub(Function(target), full=True)
    assert " ".join(doc.split()) == whole.partition("  # ")[2]


def test_defaults_with_the_name_of_a_secret_are_dots() -> None:
    """A key is often a default, and a model does not need it."""

    def ask(
        question: str, api_key: str = "sk-1234", token="t", keyboard: str = "us", key: str = ""
    ) -> None: ...

    assert (
        "ask(question: str, api_key: str = ..., token=..., keyboard: str = 'us', key: str = '') -> None"
        == (function_stub(Function(ask)))
    )
