"""Errors suggest what was probably meant."""

import sys
import time

import pytest


def hint(failing, code):
    return failing(code).message.partition("; ")[2]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("dff = diff = 1\ndf + 1", "nearest: dff, diff"),
        ("df = 1\ndff", "nearest: df"),
        ("prnt(1)", "nearest: print"),
        ("Total = 1\ntotal", "nearest: Total"),
        ("unit_price = 1\nprice", "nearest: unit_price"),
        ("Path('x')", "not imported: `from pathlib import Path`"),
        ("itertools.chain", "not imported: `import itertools`"),
        ("def f(prices):\n    return price\nf(1)", "nearest: prices"),
        ("zzzzzz", ""),
    ],
)
def test_names(failing, code, expected):
    assert expected == hint(failing, code)


@pytest.mark.parametrize("name", ["__", "___", "_i", "_ii", "_3", "_i12", "_oh", "In", "Out"])
def test_names_in_which_ipython_has_earlier_results(failing, name):
    """Each of them would hold a value in memory, and make a step depend on those before it."""
    said = "only `_` holds a result here, the last one: assign what is used later to a name of its own"
    assert said == hint(failing, f"1\n{name}")


def test_other_names_of_modules(failing):
    pytest.importorskip("sklearn")
    assert "it is imported as sklearn" in failing("import scikit_learn").message
    assert "not imported: `import numpy as np`" == hint(failing, "np.array(1)")


def test_a_well_known_module_that_is_not_installed(failing):
    assert "seaborn is not installed here and there is no network" in failing("sns.lineplot()").message


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("'a'.uppr()", "nearest: upper, isupper"),
        ("import math\nmath.squrt(2)", "nearest: sqrt, isqrt"),
        ("class C:\n    def __init__(self): self.total = 1\nC().totl", "nearest: total"),
        ("None.x", ""),
    ],
)
def test_attributes(failing, code, expected):
    assert expected == hint(failing, code)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("d = {'price': 1, 'name': 2}\nd['prise']", "keys: 'price', 'name'"),
        ("d = {'a': {'b': 1}}\nd['a']['c']", "keys: 'b'"),
        ("d = {f'key_{i}': i for i in range(100)}\nd['key_1x']", "nearest keys: 'key_1'"),
        ("d = {i: i for i in range(100)}\nd['17']", "nearest keys: 17"),
        ("d = {str(i): i for i in range(100)}\nd[17]", "nearest keys: '17'"),
        ("d = {f'k{i}': i for i in range(100)}\nd['zzz']", "100 keys, such as 'k0', 'k1', 'k2'"),
        ("{}['a']", ""),
        ("d = {}\nd['a']", "there are no keys"),
        ("class C: pass\nc = C()\nc.d = {'a': 1}\nc.d['b']", "keys: 'a'"),
        ("items = [{'id': 1}]\n[item['ID'] for item in items]", "keys: 'id'"),
        ("x = {'items': [{'id': 1}]}\nsum(i['ID'] for i in x['items'] if i['IT'])", "keys: 'id'"),
        ("def f(rows):\n    return {row['ID']: row for row in rows}\nf([{'id': 1}])", "keys: 'id'"),
        ("[x['a'] for x in x]", ""),
        ("a = b = [[{'k': 1}]]\n[x['a'] for y in a for x in y]", "keys: 'k'"),
        ("from collections import OrderedDict\nd = OrderedDict(a=1)\nd['b']", "keys: 'a'"),
        ("d = {'a': 1}\nd.pop('b')", "keys: 'a'"),
    ],
)
def test_keys(failing, code, expected):
    hinted = hint(failing, code)
    assert hinted.startswith(expected) if expected else expected == hinted


class TestFrames:
    @pytest.fixture(autouse=True)
    def frame(self, good):
        pytest.importorskip("pandas")
        good(
            "import pandas as pd\ndf = pd.DataFrame({'price': [1, 2], 'name': ['a', 'b']}, index=['x', 'y'])\n"
            "wide = pd.DataFrame({f'column_{i}': [i] for i in range(50)})"
        )

    @pytest.mark.parametrize(
        "code",
        ["df['prise']", "df[['prise', 'name']]", "df.groupby('prise')", "df.sort_values('prise')",
         "df.drop(columns='prise')", "df.set_index('prise')", "df.groupby('name')['prise']",
         "df.merge(df, on='prise')", "len(df['prise'])", "df.groupby('name').agg({'prise': 'sum'})",
         "def f(frame):\n    return frame['prise']\nf(df)"],
    )  # fmt: skip
    def test_columns_are_listed(self, failing, code):
        assert "columns: 'price', 'name'" == hint(failing, code)

    def test_of_many_columns_the_nearest(self, failing):
        assert "nearest columns: 'column_1'" in failing("wide['colum_1']").message

    @pytest.mark.parametrize("code", ["df.loc['z']", "df['price']['z']", "df.at['z', 'price']"])
    def test_labels_are_listed(self, failing, code):
        assert "labels: 'x', 'y'" == hint(failing, code)

    def test_attributes(self, failing):
        assert "nearest: price" in failing("df.prise").message


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import colectionz", "nearest installed: collections"),
        ("import pytestt", "nearest installed: pytest"),
        ("import os.pth", ""),
        ("from math import squrt", "nearest in math: sqrt, isqrt"),
        ("import json.decode", "nearest in json: decoder"),
        ("import IPython.terminal", "No module named 'IPython.terminal'"),
        ("import zzzqqq", "not installed here, and there is no network"),
    ],
)
def test_imports(failing, code, expected):
    assert expected in failing(code).message


def test_files(failing, tmp_path):
    (tmp_path / "sales.csv").write_text("")
    assert "nearest in the working directory: sales.csv" == hint(failing, "open('sale.csv')")
    assert "the working directory holds: sales.csv" == hint(failing, "open('qqq')")
    assert "there is no folder data" == hint(failing, "open('data/x.csv')")
    (tmp_path / "empty").mkdir()
    assert "empty is empty" == hint(failing, "open('empty/x.csv')")


def test_programs(failing, tmp_path):
    """The content of the working directory says nothing about them, unless the program was named by a path."""
    (tmp_path / "sales.csv").write_text("")
    found = hint(failing, "import subprocess\nsubprocess.run(['qqq'])")
    assert f"no program of that name is installed here, and sys.executable is {sys.executable}" == found
    assert ". holds: sales.csv" == hint(failing, "subprocess.run(['./qqq'])")


def test_calls_show_the_signature(failing):
    failing("def area(width, height=1, *, unit='m'): ...\nclass C:\n    def m(self, a): ...\n1/0")
    assert "signature: area(width, height=1, *, unit='m')" == hint(failing, "area()")
    assert "signature: area(width, height=1, *, unit='m')" == hint(failing, "x = [area(1, heightt=2)]")
    assert (
        "signature: m(self, a)" == hint(failing, "C().m(1, 2)")
        or "signature" in failing("c = C()\nc.m(1, 2)").message
    )


@pytest.mark.parametrize(
    "code",
    ["raise OSError(101, 'Network is unreachable')",
     "raise Exception('HTTPSConnectionPool: [Errno -3] Temporary failure in name resolution')",
     "raise OSError(97, 'Address family not supported by protocol')"],
)  # fmt: skip
def test_the_network(failing, code):
    assert "this runtime has no network" in failing(code).message


def test_places_that_cannot_be_written(failing, monkeypatch):
    """The folder for temporary files belongs to the jail, whether it is /tmp or not."""
    monkeypatch.setenv("TMPDIR", "/somewhere")
    message = failing("raise PermissionError(13, 'denied', '/etc/x')").message
    assert "only the working directory and /somewhere can be written" in message


def test_hints_stay_bounded(failing):
    assert 1_500 > len(failing("d = {'k' * 1000 + str(i): i for i in range(12)}\nd['k']").message)


def test_a_large_namespace_costs_little(failing, good):
    good("globals().update({f'name_{i}': i for i in range(20_000)})")
    assert 5 > failing_duration(failing)


def failing_duration(failing):
    started = time.process_time()
    failing("nam_5")
    return time.process_time() - started
