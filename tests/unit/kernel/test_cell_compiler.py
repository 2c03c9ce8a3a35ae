"""Cells are compiled under unique file names, with their sources available."""

import linecache

import pytest

from cenote_worker.jail.cells.source import CellCompiler


@pytest.fixture
def compiler():
    yield CellCompiler(keep=10)
    for name in [name for name in linecache.cache if name.startswith("<cell ")]:
        del linecache.cache[name]


def test_a_last_expression_is_set_apart(compiler):
    cell = compiler.compile("x = 1\nx", 3)
    assert "<cell 3>" == cell.filename == cell.body.co_filename == cell.last.co_filename
    assert compiler.compile("x = 1", 4).last is None
    assert compiler.compile("x", 5).body is None


@pytest.mark.parametrize("code", ["a\r\nb", "a\rb", "a\nb", "a\n\x0cb"])
def test_lines_are_counted_as_the_compiler_does(compiler, code):
    """A form feed or U+2028 does not end a line of Python."""
    compiler.compile(code, 1)
    assert ("a", "b") == (compiler.line("<cell 1>", 1), compiler.line("<cell 1>", 2).lstrip("\x0c"))
    compiler.compile("'\u2028'\nb", 2)
    assert "b" == compiler.line("<cell 2>", 2)


def test_lines_out_of_range_are_empty(compiler):
    compiler.compile("a", 1)
    assert ["", "", ""] == [
        compiler.line("<cell 1>", 0),
        compiler.line("<cell 1>", 2),
        compiler.line("<cell 9>", 1),
    ]


def test_a_rewritten_line_keeps_its_source(compiler):
    """Tracebacks show the original line, and mark no columns there."""
    compiler.compile("x = 1\n!ls\ny = 2", 1)
    assert "!ls" == compiler.line("<cell 1>", 2)
    assert [False, True, False] == [compiler.is_rewritten("<cell 1>", number) for number in (1, 2, 3)]


def test_an_error_after_rewriting_is_about_the_wrong_line(compiler):
    with pytest.raises(SyntaxError) as caught:
        compiler.compile("%time x = 1\ny = = 2", 1)
    assert 2 == caught.value.lineno
    assert caught.value.__context__ is None


def test_statements_are_had_without_a_cell(compiler):
    """For code that may run later: it gets no name and no source; code that is not Python has none."""
    assert ["AugAssign", "Expr"] == [type(each).__name__ for each in compiler.statements("a += 1\nf(a)")]
    assert () == compiler.statements("!ls")
    assert {} == compiler.sources
