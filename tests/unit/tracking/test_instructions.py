"""The meaning of code, independent of its position."""

from __future__ import annotations

from types import CodeType

import pytest

from cenote_worker.jail.tracking.code.instructions import instructions, said_anywhere
from cenote_worker.jail.tracking.descriptions.objects import code_digest

CLASS = """
def make():
    class Box:
        size = {size}
        def fill(self):
            self.first = self.second = self.third = 1
    return Box
"""


def code_of(source: str) -> CodeType:
    """The code of the one function that the source defines."""
    return next(each for each in compile(source, "a", "exec").co_consts if type(each) is CodeType)


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_a_class_says_the_same_on_another_line(size: int) -> None:
    """Though the code has its line number as a constant, which may also be one of its own constants."""
    source = CLASS.format(size=size)
    assert code_digest(code_of(source)) == code_digest(code_of(f"\n# a comment\n{source}"))


def test_classes_differ_by_what_they_bind() -> None:
    digests = {code_digest(code_of(CLASS.format(size=size))) for size in (1, 3, 4, 9)}
    assert len(digests) == 4


def test_only_what_the_compiler_binds_is_left_out() -> None:
    """Once: a program may bind the name itself."""
    said = [
        said_anywhere(next(each for each in code_of(source).co_consts if type(each) is CodeType))
        for source in (
            "def f():\n class C:\n  __firstlineno__ = 700",
            "def f():\n class C:\n  __firstlineno__ = 800",
        )
    ]
    assert said[0] != said[1]


def test_large_arguments_are_put_together() -> None:
    code = compile("\n".join(f"x{number} = {number}.5" for number in range(400)), "a", "exec")
    assert 399 in {argument for _, argument, _ in instructions(code)}
