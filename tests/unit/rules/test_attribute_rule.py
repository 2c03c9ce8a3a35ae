"""AttributeRule: attributes in every form of access, including strings that contain their names."""

from __future__ import annotations

import sys

import pytest

from cenote_security.rules import AttributeRule, DynamicAttributeRule, HiddenAttributeRule, SecurityChecker


def names(code: str, *attributes: str) -> set[str]:
    violations = SecurityChecker([AttributeRule(attributes)]).check_code(code)
    return {violation.reason.split()[1] for violation in violations}


@pytest.mark.parametrize(
    "code",
    [
        "f.__globals__",
        "f.__globals__ = 1",
        "f.__globals__ += 1",
        "del f.__globals__",
        "getattr(f, '__globals__')",
        "getattr(f, '__glo' + 'bals__', None)",
        "setattr(f, '__globals__', {})",
        "delattr(f, '__globals__')",
        "g = getattr\ng(f, '__globals__')",
        "f.__getattribute__('__globals__')",
        "object.__getattribute__(f, '__globals__')",
        "'{0.__globals__}'.format(f)",
        "text = '{x.__globals__[a]}'\ntext.format(x=f)",
        "('{0.__glo' + 'bals__}').format(f)",
        "import string\nstring.Formatter().get_field('0.__globals__', [f], {})",
        "from operator import attrgetter\nattrgetter('a.__globals__')(f)",
        "from functools import partial\npartial(getattr, f)('__globals__')",
        "from functools import reduce\nreduce(getattr, ['__globals__', 'x'], f)",
        "match f:\n    case object(__globals__=g):\n        pass",
        "match x:\n    case [a, {'k': C(b=D(__globals__=g))}]:\n        pass",
        "vars(f)['__globals__']",
        "f.__dict__['__globals__']",
        "f.__dict__.get('__globals__')",
        "name = '__glo'\nname += 'bals__'\ngetattr(f, name)",
        "for name in ['__name__', '__globals__']:\n    getattr(f, name)",
        "def read(x, name):\n    return getattr(x, name)\nread(f, '__globals__')",
        "x.__\N{FULLWIDTH LATIN SMALL LETTER G}lobals__",
        "df.eval('a.__globals__')",
    ],
)
def test_every_road_to_an_attribute_is_seen(code: str) -> None:
    """Syntax, functions, format strings, patterns."""
    assert names(code, "__globals__") == {"__globals__"}


@pytest.mark.parametrize(
    "code",
    [
        "'__globals__ is a dict of the module'",
        "print('__globals__')",
        "if name == '__globals__': pass",
        "name in ('__globals__', '__code__')",
        "{'__globals__': 1}",
        "'__globals__'",
        "text.replace('__globals__', '')",
        "class A:\n    def __globals__(self): pass",
        "# f.__globals__",
        "r'\\frac{a.b}{c}'",
    ],
)
def test_mere_mentions_are_fine(code: str) -> None:
    """Text about an attribute is not a use of it."""
    assert names(code, "__globals__") == set()


def test_plain_names_are_only_attributes() -> None:
    """A rule for `system` applies to attributes, not to variables, keys and arguments of that name."""
    assert names("system = 1\nrecord['system']\nf(system=2)\nprint('system')", "system") == set()
    assert names("x.system", "system") == {"system"}
    assert names("from os import system", "system") == {"system"}


def test_builtins_by_its_bare_name() -> None:
    """`__builtins__` is an attribute of the module that the cell is."""
    assert names("__builtins__", "__builtins__") == {"__builtins__"}
    assert names("globals()['__builtins__']", "__builtins__") == {"__builtins__"}


def test_keys_of_data_may_look_like_attributes() -> None:
    """JSON has keys such as `__class__`."""
    assert names("record['__class__'], record.get('__class__')", "__class__") == set()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of 3.12")
@pytest.mark.parametrize(
    "code", ["type X = f.__globals__", "def f[T: x.__globals__](): pass", "class A[*T, **P]: x.__globals__"]
)
def test_lazily_evaluated_types(code: str) -> None:
    """The content of a type alias or a bound is evaluated lazily, so it counts."""
    assert names(code, "__globals__") == {"__globals__"}


def test_hidden_attributes() -> None:
    """Unlisted dunders and private members of modules, but not an object's own private ones."""
    checker = SecurityChecker([HiddenAttributeRule({"__init__"})])
    assert checker.check_code("x.__init__\nself._cache\nx.public") == []
    assert len(checker.check_code("x.__code__")) == 1
    assert len(checker.check_code("import json\njson._default_decoder")) == 1


@pytest.mark.parametrize(
    ("code", "private"),
    [
        ("import numpy as np\nnp.lib._utils_impl", True),
        ("import numpy as np\nnp.lib.npyio.NpzFile._files", True),
        ("from pandas import _libs", True),
        ("from pandas.io.common import _get", True),
        ("import pandas as pd\npd.DataFrame({})._get_numeric_data()", False),
        ("from collections import namedtuple\nnamedtuple('P', 'x')._fields", False),
        ("class A:\n    _x = 1\nA._x, A()._x", False),
    ],
)
def test_what_is_private_to_a_library(code: str, private: bool) -> None:
    """At any depth of its modules and classes; objects made from it keep their own."""
    assert private == bool(SecurityChecker([HiddenAttributeRule()]).check_code(code))


def test_attributes_that_are_set_by_the_method_of_object() -> None:
    """`object.__setattr__(x, name, value)` has the effect of `x.name = value`."""
    for code in ("object.__setattr__(f, 'secret', 1)", "super().__setattr__('secret', 1)"):
        assert names(code, "secret") == {"secret"}
    assert names("super().__setattr__('public', secret)", "secret") == set()


def test_dynamic_attributes() -> None:
    """Names that are written out nearby can be resolved; others cannot."""
    checker = SecurityChecker([DynamicAttributeRule()])
    assert checker.check_code("for n in ['a', 'b']:\n    getattr(x, n)") == []
    assert checker.check_code("n = 'a' if y else 'b'\ngetattr(x, n)") == []
    assert len(checker.check_code("getattr(x, n)")) == 1
    assert len(checker.check_code("n = ''\nfor c in x:\n    n += c\ngetattr(x, n)")) == 1
