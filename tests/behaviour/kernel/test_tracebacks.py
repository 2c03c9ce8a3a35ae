"""Tracebacks show the user's frames with their lines, none of Cenote's, and are bounded."""

import pytest

from cenote_worker.execution.results import Span


def test_frames_of_the_user_with_their_lines(failing):
    """Including functions from earlier cells."""
    failing("def ratio(a, b):\n    return a / b\n1/0")
    error = failing("total = 1\nx = 2 + ratio(total, 0)")
    assert (
        "Traceback (most recent call last):\n"
        "  cell 2, line 2\n"
        "    x = 2 + ratio(total, 0)\n"
        "            ^^^^^^^^^^^^^^^\n"
        "  cell 1, line 2, in ratio\n"
        "    return a / b\n"
        "           ^^^^^\n"
        "ZeroDivisionError: division by zero"
    ) == error.traceback
    assert error.traceback == str(error)


@pytest.mark.parametrize(
    ("code", "span"),
    [
        ("x = 1\ny = x + nope", Span(line=2, column=8, end_line=2, end_column=12)),
        ("ä = 'ü'; ö = ä + 1", Span(line=1, column=13, end_line=1, end_column=18)),
        ("x = (1 +\n  'é' -\n  2)", Span(line=1, column=5, end_line=2, end_column=5)),
        ("def f():\n    nope\nf()", Span(line=2, column=4, end_line=2, end_column=8)),
        ("x = = 2", Span(line=1, column=4, end_line=1, end_column=5)),
        ("import json\njson.loads('{')", Span(line=2, column=0, end_line=2, end_column=15)),
        ("x = 1\n  !false; %nope\n", None),
        ("x = 1\n%nope it", Span(line=2, column=0, end_line=2, end_column=8)),
    ],
)
def test_span_is_the_failing_expression(failing, code, span):
    """Columns count characters, though Python counts bytes."""
    error = failing(code)
    if span is not None:
        assert span == error.span


def test_span_lies_in_the_cell_that_ran(failing):
    """Not in the earlier cell that defined the function."""
    failing("\n\n\ndef f(): 1/0\n1/0")
    assert Span(line=1, column=5, end_line=1, end_column=8) == failing("10 + f()").span


class TestSyntaxErrors:
    def test_have_a_caret(self, failing):
        error = failing("x = 1\n  \nif x = 2:\n    pass")
        assert (
            "Traceback (most recent call last):\n  cell 1, line 3\n    if x = 2:\n       ^^^^^\n"
            "SyntaxError: invalid syntax. Maybe you meant '==' or ':=' instead of '='?"
        ) == error.traceback

    @pytest.mark.parametrize("code", ["return 5", "def f():\n    await x", "x = 1\nbreak", "nonlocal x"])
    def test_found_after_parsing_have_their_line(self, failing, code):
        error = failing(code)
        assert "SyntaxError" == error.type
        assert code.split("\n")[-1].strip() in error.traceback

    def test_of_a_module(self, failing, tmp_path):
        (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
        assert (
            "  broken.py, line 2\n    def f(:\n          ^\nSyntaxError" in failing("import broken").traceback
        )

    def test_of_text(self, failing):
        """Python 3.13 knows lines of `<string>`: those that started this process."""
        assert "    1 +\n" in failing("eval('1 +')").traceback
        assert "  <string>, line 1, in f\nZeroDivisionError" in failing("exec('def f(): 1/0')\nf()").traceback


class TestLibraries:
    def test_are_one_line(self, failing):
        """Only the line that raised, with a short path."""
        traceback = failing("import json\njson.loads('{')").traceback
        assert 1 == traceback.count("json/decoder.py")
        assert "    json.loads('{')\n  in json/decoder.py:" in traceback
        assert "json.decoder.JSONDecodeError: Expecting property name" in traceback
        assert 5 == len(traceback.split("\n"))

    def test_between_the_users_frames_are_left_out(self, failing):
        traceback = failing("import functools\nfunctools.reduce(lambda a, b: a / b, [1, 0])").traceback
        assert "/functools.py" not in traceback
        traceback = failing("import re\nre.sub('a', lambda m: 1/0, 'a')").traceback
        assert "re/__init__" not in traceback
        assert ", in <lambda>\n" in traceback

    def test_that_raise_again_add_nothing(self, failing):
        pytest.importorskip("pandas")
        traceback = failing("import pandas as pd\npd.DataFrame({'a': [1]})['b']").traceback
        assert 1 == traceback.count("KeyError")
        assert 5 == len(traceback.split("\n"))

    def test_modules_of_the_user_are_not_libraries(self, failing, tmp_path):
        (tmp_path / "mine.py").write_text("def f():\n    return 1 / 0\n")
        assert "  mine.py, line 2, in f\n    return 1 / 0\n" in failing("import mine\nmine.f()").traceback


def test_nothing_of_the_kernel_shows(failing):
    for code in (
        "1/0",
        "import asyncio\nawait asyncio.sleep(0)\n1/0",
        "%nope",
        "display(1/0)",
        "reply(1/0)",
        "input()",
    ):
        assert "cenote_worker/jail" not in failing(code).traceback


def test_of_threads(good, sink):
    """An exception in a thread is shown in the same way, on stderr."""
    good("import threading\nt = threading.Thread(target=lambda: 1/0, name='worker')\nt.start(); t.join()")
    assert (
        "Exception in thread worker:\nTraceback (most recent call last):\n  cell 1, line 2, in <lambda>\n"
        "    t = threading.Thread(target=lambda: 1/0, name='worker')\n"
        "                                        ^^^\nZeroDivisionError: division by zero\n"
    ) == sink.err


class TestChains:
    def test_a_cause_comes_first(self, failing):
        traceback = failing(
            "try:\n    1/0\nexcept Exception as e:\n    raise ValueError('bad') from e"
        ).traceback
        assert (
            "  cell 1, line 2\n    1/0\nZeroDivisionError: division by zero\nwhich was the cause of:\n"
            "  cell 1, line 4\n    raise ValueError('bad') from e\nValueError: bad"
        ) in traceback

    def test_a_context_comes_first(self, failing):
        traceback = failing("try:\n    1/0\nexcept Exception:\n    nope").traceback
        assert "ZeroDivisionError: division by zero\nwhile it was handled, came:\n" in traceback

    def test_from_none_hides_the_context(self, failing):
        assert (
            "Zero"
            not in failing("try:\n    1/0\nexcept Exception:\n    raise ValueError from None").traceback
        )

    def test_cycles_end(self, failing):
        traceback = failing(
            "a, b = ValueError('a'), ValueError('b')\na.__cause__ = b\nb.__cause__ = a\nraise a"
        ).traceback
        assert 1 == traceback.count("ValueError: b")

    def test_long_chains_are_cut(self, failing):
        code = (
            "e = None\nfor i in range(100):\n    n = ValueError(f'no {i};')\n    n.__cause__ = e\n    e = n\n"
        )
        code += "raise e"
        traceback = failing(code).traceback
        assert "no 99;" in traceback
        assert 6 > traceback.count("ValueError")


class TestGroups:
    def test_show_their_members(self, failing):
        traceback = failing("raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])").traceback
        assert (
            "ExceptionGroup: two (2 sub-exceptions)\n  1 of 2:\n    ValueError: a\n  2 of 2:\n    KeyError: 'b'"
            in traceback
        )

    def test_members_have_their_frames(self, failing):
        traceback = failing(
            "import asyncio\nasync def bad(): raise ValueError('x')\n"
            "async with asyncio.TaskGroup() as group:\n    group.create_task(bad())"
        ).traceback
        assert "      cell 1, line 2, in bad\n        async def bad(): raise ValueError('x')\n" in traceback

    def test_large_and_deep_ones_are_cut(self, failing):
        code = (
            "g = ValueError('inner')\nfor i in range(50): g = ExceptionGroup('g', [g] + [KeyError(i)] * 50)\n"
        )
        code += "raise g"
        assert 8_200 > len(failing(code).traceback)


def test_notes_are_shown(failing):
    assert (
        "ValueError: x\n  first\n  second"
        in failing("e = ValueError('x')\ne.add_note('first'); e.add_note('second')\nraise e").traceback
    )


class TestBounds:
    def test_recursion_is_collapsed(self, failing):
        traceback = failing("def f(n):\n    return f(n + 1)\nf(0)").traceback
        assert "more times]" in traceback
        assert 12 > len(traceback.split("\n"))

    def test_mutual_recursion_is_cut(self, failing):
        traceback = failing("def f(): g()\ndef g(): f()\nf()").traceback
        assert "frames left out" in traceback
        assert 45 > len(traceback.split("\n"))

    def test_a_long_message_keeps_its_ends(self, failing):
        error = failing("raise ValueError('a' * 10**6 + 'z')")
        assert error.message.endswith("az")
        assert 2_100 > len(error.message)
        assert 8_200 > len(error.traceback)

    def test_a_long_line_is_cut_around_the_failure(self, failing):
        traceback = failing("x = [" + "1, " * 5_000 + "nope, " + "2, " * 5_000 + "]").traceback
        assert "1, nope, 2" in traceback
        assert 500 > len(traceback)

    def test_deep_recursion_costs_little(self, failing):
        error = failing("import sys\nsys.setrecursionlimit(20_000)\ndef f(): f()\nf()")
        assert "RecursionError" == error.type


HOSTILE = {
    "str": "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
    "str exits": "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
    "str recurses": "class E(Exception):\n    def __str__(self): return str(self)\nraise E",
    "str is no text": "class E(Exception):\n    def __str__(self): return 5\nraise E",
    "str is huge": "class E(Exception):\n    def __str__(self): return 'x' * 10**8\nraise E",
    "repr": "class K:\n    def __repr__(self): raise ValueError\n{}[K()]",
    "attributes": "class E(Exception):\n    def __getattribute__(self, n): raise ValueError\nraise E('x')",
    "class": "class E(Exception):\n    __class__ = property(lambda self: 1/0)\nraise E('x')",
    "traceback": "class E(Exception):\n    __traceback__ = __cause__ = __context__ = property(id)\nraise E",
    "notes": "class E(Exception):\n    __notes__ = property(lambda s: 1/0)\nraise E('x')",
    "odd notes": "e = ValueError('x')\ne.__notes__ = 5\nraise e",
    "bad note": "class N:\n    def __str__(self): 1/0\ne = ValueError('x')\ne.__notes__ = [N()]\nraise e",
    "metaclass": "class M(type):\n    def __getattribute__(c, n): raise ValueError\n"
                 "class E(Exception, metaclass=M): pass\nraise E('x')",
    "module": "class E(Exception): pass\nE.__module__ = 5\nraise E('x')",
    "long name": "raise type('E' * 10**5, (Exception,), {})('x')",
    "surrogates": "raise ValueError('\\ud800')",
    "surrogate name": "raise type('E\\ud800', (Exception,), {})('x')",
    "syntax error": "class E(SyntaxError):\n    filename = lineno = text = property(lambda s: 1/0)\nraise E('x')",
    "syntax error facts": "e = SyntaxError('x')\ne.filename, e.lineno, e.offset, e.text = 5, 'a', [], {}\nraise e",
    "syntax error elsewhere": "e = SyntaxError('x')\ne.filename, e.lineno, e.offset = '<cell 1>', 9**9, -99\nraise e",
    "name error": "class E(NameError):\n    name = property(lambda s: 1/0)\nraise E('x')",
    "attribute error": "raise AttributeError('x', name=5, obj=object())",
    "dir": "class C:\n    def __dir__(self): raise ValueError\nC().x",
    "dir of odd things": "class C:\n    def __dir__(self): return [1, 2]\nC().x",
    "keys": "class D(dict):\n    def __iter__(self): raise ValueError\n    def __len__(self): return -1\nD(a=1)['b']",
    "key equality": "class K(str):\n    def __eq__(self, o): raise ValueError\n    __hash__ = str.__hash__\n"
    "{K('a'): 1}['b']",
    "file name": "exec(compile('1/0', '/dev/zero', 'exec'))",
    "fifo": "import os\nos.mkfifo('pipe')\nexec(compile('1/0', 'pipe', 'exec'))",
    "odd file name": "exec(compile('1/0', 'a\\ud800b', 'exec'))",
    "fake cell": "exec(compile('\\n\\n\\n1/0', '<cell 1>', 'exec'))",
    "group": "class G(ExceptionGroup):\n    exceptions = property(lambda s: 1/0)\n    def __str__(s): 1/0\n"
             "raise G('x', [ValueError()])",
    "import error": "raise ImportError(name=5)",
    "os error": "raise FileNotFoundError(2, 'no', 5)",
    "os error path": "raise FileNotFoundError(2, 'no', 'a\\0b/c')",
    "signature": "class S:\n    def __call__(self, *, a): pass\n    __signature__ = property(lambda s: 1/0)\nS()(1)",
    "linecache": "import linecache\nlinecache.getline = linecache.cache = None\n1/0",
    "exit code": "class C(int):\n    def __int__(self): 1/0\nraise SystemExit(C(3))",
    "exit text": "class C:\n    def __str__(self): 1/0\nraise SystemExit(C())",
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_exceptions_are_explained(apart, code):
    """For any special methods: the cell fails with a type and text, and the next cell runs."""
    failed, after = apart(code, "1 + 1").cells
    assert failed["type"]
    assert 2_500 > len(failed["error"])
    assert "2" == after["value"]
