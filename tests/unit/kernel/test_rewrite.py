"""IPython's syntax becomes calls; code that is already Python is unchanged."""

import ast
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_worker.jail.cells.ipython_syntax import to_python


@pytest.mark.parametrize(
    ("code", "python"),
    [
        ("%matplotlib inline", "_magic_.line('matplotlib', 'inline')"),
        ("!ls -l", "_magic_.shell('ls -l')"),
        ("x = !ls -l", "x = _magic_.shell_lines('ls -l')"),
        ("d = %pwd", "d = _magic_.line('pwd', '')"),
        ("%time f(1)", "_magic_.timed(lambda: (f(1)))"),
        ("%time x = f(1)", "with _magic_.timing(): x = f(1)"),
        ("%time await f()", "with _magic_.timing(): await f()"),
        ("%timeit -n 10 f(1)", "for _ in _magic_.repeat('-n 10'): f(1)"),
        ("%timeit -n1 -r1 f(1)", "for _ in _magic_.repeat('-n1 -r1'): f(1)"),
        ("%timeit -qn2 -o f(1)", "for _ in _magic_.repeat('-qn2 -o'): f(1)"),
        ("%timeit -n 1 -- -x", "for _ in _magic_.repeat('-n 1 --'): -x"),
        ("%timeit -x + 1", "for _ in _magic_.repeat(''): -x + 1"),
        ("%timeit -n -x", "for _ in _magic_.repeat(''): -n -x"),
        ("df?", "_magic_.inspect(df, 'df', False)"),
        ("?pd.read_csv", "_magic_.inspect(pd.read_csv, 'pd.read_csv', False)"),
        ("f??", "_magic_.inspect(f, 'f', True)"),
        ("%%time\nx = 1\nx", "_magic_.time_cell('')\nx = 1\nx"),
        ("%%capture out\nx = 1", "_magic_.capture_cell('out')\nx = 1"),
        ("%%bash\necho 'it'", "_magic_.cell('bash', '', \"echo 'it'\")\n"),
        ("%%writefile a.py\nx = 1", "_magic_.write_file('a.py', 'x = 1')\n"),
        ("%%timeit -n 5\nx = 1", "for _ in _magic_.repeat('-n 5'):\n x = 1"),
        ("\n# first\n%%time\n1", "\n# first\n_magic_.time_cell('')\n1"),
        ("if x:\n    !ls\n    %cd ..", "if x:\n    _magic_.shell('ls')\n    _magic_.line('cd', '..')"),
        ("!ls \\\n  -l\nx = 1", "_magic_.shell('ls -l')\n\nx = 1"),
        ("x = 1\n%pip install it's\ny = 2", "x = 1\n_magic_.line('pip', \"install it's\")\ny = 2"),
    ],
)
def test_additions_become_calls(code, python):
    assert python == to_python(code)
    ast.parse(python.replace("await ", ""))


@pytest.mark.parametrize(
    "code",
    [
        "s = '''\n%time x\n!ls\ndf?\n'''",
        "x = (5\n%two)",
        "x = 1 if y else 2  # what?",
        "# %matplotlib inline",
        "x = 'a' != 'b'",
        "f'{x!r}'",
        "",
    ],
)
def test_python_stays(code):
    """A line of a string may begin with anything."""
    assert code == to_python(code)


@pytest.mark.parametrize(
    "code", ["x = = 1", "x = 1 +\n%time y", "a = b?", "%", "foo(1\n%time x", "x = '\0'\n!ls"]
)
def test_what_is_neither_stays(code):
    """So that the compiler reports the original text."""
    assert code == to_python(code)


def test_code_in_a_timing_stays_visible():
    """Security rules read the result: timed code must not be hidden in a string."""
    for code in ("%time evil()", "%timeit evil()", "%%time\nevil()", "%%timeit\nevil()", "%%capture\nevil()"):
        calls = [
            node.func.id
            for node in ast.walk(ast.parse(to_python(code)))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert ["evil"] == calls


def test_strings_in_a_repeated_cell_keep_their_text():
    """Its lines are indented, except those that begin inside a string."""
    tree = ast.parse(to_python("%%timeit\ns = '''a\nb\n  c'''\nif s:\n    x = 1"))
    assert ["a\nb\n  c"] == [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "a" in node.value
    ]


lines = st.lists(
    st.sampled_from(
        ["x = 1", "%time f()", "!ls 'a", "y = !pwd", "%%bash", "%%time", "if x:", "    pass", "    %pwd", "'''",
         "df?", "(", ")", "\\", "", "# c", "%", "!", "x = %env A", "%timeit -n 1 -r", "%%timeit"]
    ),
    max_size=8,
)  # fmt: skip


@given(lines)
@settings(max_examples=200)
def test_lines_keep_their_numbers(parts):
    """Errors and spans refer to the original lines."""
    code = "\n".join(parts)
    assert code.count("\n") == to_python(code).count("\n")


@given(st.text(alphabet="%!?= \nax'\"(\\", max_size=40))
@settings(max_examples=200)
def test_any_text_is_taken(text):
    assert isinstance(to_python(text), str)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "code",
    [" " * 100_000 + "%", "a " * 50_000 + "= x !", "%timeit " + "-1" * 50_000, "%time " + "-n 1 " * 20_000,
     "!x\n" * 20_000, "x=1\n" * 50_000 + "!x\n" * 100, "(" * 100_000 + "\n!x", "%%bash\n" + "'" * 100_000],
)  # fmt: skip
def test_hostile_code_takes_no_time(code):
    """The rewriting runs in the client too."""
    started = time.process_time()
    to_python(code)
    assert 5 > time.process_time() - started
