"""Variables are described by type, shape, size and a short line, never by value, at bounded cost."""

import sys

import pytest


def described(kernel, name):
    info = kernel.describe_one(name)
    return info.type, info.shape, info.description


def test_variables_of_the_user_only(good, kernel):
    good("import os, sys\nx = 1\n_private = 2\ndef f(): ...\nfrom math import pi\n5")
    assert ["x", "f", "pi"] == [info.name for info in kernel.describe()]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("5", ("int", None, "")),
        ("'secret'", ("str", None, "6 characters")),
        ("b'ab'", ("bytes", None, "2 bytes")),
        ("[1, 'a', 2]", ("list", (3,), "of int, str")),
        ("[]", ("list", (0,), "empty")),
        ("[{'id': 1, 'name': 'x'}] * 3", ("list", (3,), "of dict with keys 'id', 'name'")),
        ("(1, 2.5)", ("tuple", (2,), "of int, float")),
        ("{'a': 1, 2: 3}", ("dict", (2,), "keys 'a', 2")),
        ("{1, 2}", ("set", (2,), "of int")),
        ("range(5)", ("range", (5,), "")),
        ("__import__('collections').Counter('aab')", ("collections.Counter", (2,), "keys 'a', 'b'")),
        ("__import__('collections').namedtuple('P', 'x y')(1, 2)", ("P", (2,), "x, y")),
        ("lambda a, b=1, *c, d, **e: 5", ("function", None, "(a, b=1, *c, d, **e)")),
        ("len", ("builtin_function_or_method", None, "(obj, /)")),
        ("None", ("NoneType", None, "")),
        ("(i for i in 'ab')", ("generator", None, "")),
    ],
)
def test_plain_values(good, kernel, code, expected):
    good(f"x = {code}")
    assert expected == described(kernel, "x")


def test_functions_and_classes(good, kernel):
    good(
        "import dataclasses, enum, typing\n"
        "def f(a: int, b: 'str' = 'x', *, c: typing.Optional[int] = None, d=object()) -> list[int]: ...\n"
        "class Plain:\n    def run(self): ...\n    def _hidden(self): ...\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n    y: int = 0\n"
        "class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n"
        "p, c, o = Point(1), Color.RED, Plain()\no.name = 'secret'"
    )
    assert (
        "(a: int, b: str = 'x', *, c: Optional[int] = None, d=...) -> list[int]" == described(kernel, "f")[2]
    )
    assert ("type", None, "run") == described(kernel, "Plain")
    assert ("type", None, "x, y") == described(kernel, "Point")
    assert ("enum.EnumType", None, "RED, BLUE") == described(kernel, "Color")
    assert ("Point", None, "x, y") == described(kernel, "p")
    assert ("Color", None, "RED") == described(kernel, "c")
    assert ("Plain", None, "name") == described(kernel, "o")


def test_models(good, kernel):
    pytest.importorskip("pydantic")
    good(
        "import pydantic\nclass User(pydantic.BaseModel):\n    name: str\n    age: int = 1\nu = User(name='a')"
    )
    assert "name, age" == described(kernel, "User")[2]
    assert ("User", "name, age") == (described(kernel, "u")[0], described(kernel, "u")[2])


def test_arrays_and_frames(good, kernel):
    pytest.importorskip("pandas")
    good(
        "import numpy as np, pandas as pd\na = np.zeros((3, 4), dtype='f4')\n"
        "df = pd.DataFrame({'price': [1.5, 2.5], 'name': ['a', 'b']})\ns = df.price\n"
        "wide = pd.DataFrame({f'c{i}': [1] for i in range(100)})"
    )
    assert ("numpy.ndarray", (3, 4), "float32") == described(kernel, "a")
    assert 48 == kernel.describe_one("a").size
    assert ("pandas.DataFrame", (2, 2), "price float64, name str") == described(kernel, "df")
    assert 32 < kernel.describe_one("df").size < 1_000
    assert ("pandas.Series", (2,), "float64 'price'") == described(kernel, "s")
    assert described(kernel, "wide")[2].endswith("c23 int64, ... 76 more")


def test_polars_and_arrow(good, kernel):
    pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    good("import polars, pyarrow\np = polars.DataFrame({'a': [1]})\nt = pyarrow.table({'a': [1]})")
    assert ("polars.DataFrame", (1, 1), "a Int64") == described(kernel, "p")
    assert ("pyarrow.Table", (1, 1), "a int64") == described(kernel, "t")
    assert 8 == kernel.describe_one("t").size


def test_size_is_cheap(good, kernel):
    good("x = [0] * 1000\ny = 'a' * 1000")
    assert 8_000 < kernel.describe_one("x").size < 9_000
    assert 1_000 < kernel.describe_one("y").size < 1_100


def test_an_unknown_name(kernel):
    with pytest.raises(KeyError):
        kernel.describe_one("nope")


HOSTILE = """
class Boom:
    def _boom(self, *a, **k): touched.append(1); raise SystemExit('boom')
    __len__ = __iter__ = __repr__ = __str__ = __sizeof__ = __getattr__ = __bool__ = __hash__ = __eq__ = _boom
    __class__ = shape = dtype = columns = nbytes = property(_boom)
class Meta(type):
    def __getattribute__(cls, name): touched.append(2); raise SystemExit('boom')
class Odd(metaclass=Meta): pass
class List(list):
    __len__ = __iter__ = __getitem__ = __sizeof__ = Boom._boom
class Dict(dict):
    __len__ = __iter__ = keys = items = __sizeof__ = Boom._boom
class Text(str):
    __len__ = __str__ = __repr__ = __sizeof__ = Boom._boom
class Fake: pass
Fake.__module__, Fake.__name__ = 'pandas', 'DataFrame'
Fake.shape = property(Boom._boom)
Nasty = type('N' * 10**5, (), {'__module__': 5})
touched = []
b, o, l, d, t, k = Boom(), Odd(), List([1]), Dict(a=1), Text('abc'), {}
f, n = Fake(), Nasty()
def g(x=b, *, y: b = b): ...
def h(): ...
h.__signature__ = b
class Signed: __signature__ = b
e = {'x' * 10**6: 1, 'c\\ud800': 2}
m = [b] * 10
"""


def test_no_code_of_the_user_runs(good, kernel):
    good(HOSTILE)
    infos = kernel.describe()
    assert [] == kernel.namespace["touched"]
    assert all(600 > len(info.description) for info in infos)
    assert all(300 > len(info.type) for info in infos)
    for info in infos:
        f"{info.type}{info.description}".encode()


def test_modules_are_found_by_their_class(good, kernel):
    good("import types, sys\nclass Lazy(types.ModuleType): pass\nlazy = Lazy('x')\nx = 1")
    assert ["Lazy", "x"] == [info.name for info in kernel.describe()]


def test_many_variables_cost_little(good, kernel):
    good("globals().update({f'v{i}': list(range(100)) for i in range(2000)})")
    assert 2_000 == len(kernel.describe())
    assert sys.getrefcount(kernel.namespace["v1"]) < 4
