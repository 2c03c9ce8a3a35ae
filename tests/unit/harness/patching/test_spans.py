"""Definitions are located exactly, and the code around them stays unchanged."""

from __future__ import annotations

import pytest

from cenote.harness.patching.definitions import definition_span, replace_definition
from cenote.harness.patching.errors import PatchConflictError

CELL = '''\
import math   # kept

# about clean
@cache  # how
@other(1,
       2)
def clean( x ):   # odd spacing
    """Text
  of less indentation."""
    return x
    # the last word

y = clean( 3 )
class Box :
    size=1

    def get(self): return self.size

    @property
    def area(self):
        return 2
'''


def test_a_function_goes_with_decorators_and_inner_comments() -> None:
    """The comment above stays, unless the new source brings its own."""
    expected = CELL[: CELL.index("@cache")] + "def clean(x):\n    return -x\n" + CELL[CELL.index("\ny =") :]
    assert expected == replace_definition(CELL, "clean", "def clean(x):\n    return -x\n")
    above = replace_definition(CELL, "clean", "# new\ndef clean(x): return 1")
    assert above is not None
    assert above.startswith("import math   # kept\n\n# new\ndef clean(x): return 1\n\ny =")


def test_a_method_takes_the_indentation_of_the_old_one() -> None:
    """The source may be written at any indentation; the inside of its strings is unchanged."""
    source = 'def get(self):\n    return """a\nb"""'
    changed = replace_definition(CELL, "Box.get", source)
    assert changed == CELL.replace(
        "    def get(self): return self.size", '    def get(self):\n        return """a\nb"""'
    )
    assert changed == replace_definition(CELL, "Box.get", '    def get(self):\n        return """a\nb"""')


def test_a_decorated_method_and_a_whole_class_are_replaced() -> None:
    """Each is one span."""
    changed = replace_definition(CELL, "Box.area", "def area(self): return 3")
    assert changed == CELL.replace(
        "    @property\n    def area(self):\n        return 2\n", "    def area(self): return 3\n"
    )
    assert CELL[: CELL.index("class")] + "class Box: pass\n" == replace_definition(
        CELL, "Box", "class Box: pass"
    )


def test_cells_with_magics_and_definitions_under_conditions_are_read() -> None:
    """A magic is no syntax, and an `if` is no scope."""
    cell = "%time 1\nif True:\n    def f(): return 1\nelse:\n    pass"
    assert cell.replace("return 1", "return 2") == replace_definition(cell, "f", "def f(): return 2")


@pytest.mark.parametrize("name", ["nothing", "Box.nothing", "clean.inner", "y"])
def test_what_is_not_defined_here_is_not_found(name: str) -> None:
    """Another cell may define it. A variable is no definition."""
    assert replace_definition(CELL, name, "def nothing(): pass") is None


@pytest.mark.parametrize("line", ["files = !ls *.csv", "a, b = %who x", "?len", "len??", "%%time\n%cd /"])
def test_other_lines_of_notebooks_are_no_obstacle(line: str) -> None:
    """Wherever they occur; they stay unchanged."""
    code = f"{line}\nx = 'a=!b'\ndef f(): return 1\n{line}"
    assert code.replace("1", "2") == replace_definition(code, "f", "def f(): return 2")


def test_code_that_is_no_python_defines_nothing() -> None:
    """It failed when it ran, too."""
    assert replace_definition("def f(:", "f", "def f(): pass") is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def other(): pass", "defines `other`, not `clean`"),
        ("def clean():\n  return (", r"is no Python: '\(' was never closed \(line 2\)"),
        ("def clean(): pass\nx = 1", "one definition of `clean` and nothing else"),
        ("clean = 1", "one definition of `clean` and nothing else"),
    ],
)
def test_a_source_that_is_not_that_definition_is_a_conflict(source: str, words: str) -> None:
    """The text says what is wrong with it."""
    with pytest.raises(PatchConflictError, match=words):
        replace_definition(CELL, "clean", source)


def test_a_name_that_is_defined_twice_is_a_conflict() -> None:
    """The choice between the two is not guessed."""
    with pytest.raises(PatchConflictError, match=r"more than once in one step \(lines 1, 2\)"):
        replace_definition("def f(): pass\ndef f(): return 1", "f", "def f(): return 2")


def test_a_span_begins_with_the_sign_of_the_first_decorator() -> None:
    """On whichever line it stands, and whatever the decorator contains."""
    code = 'é = "@"\n@(\n  deco("x@y")\n)\n@other\ndef f():\n    return 1  # one\n    # tail\nlast = 2\n'
    start, end = definition_span(code, "f") or (0, 0)
    assert (code.index("@("), code.index("\nlast")) == (start, end)
