"""State set in libraries, and names that lead into these: in a branch of a branch, and after reopening."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.forks.fixtures import Fork, Make

from cenote.runtime import PythonRuntime, foretold
from cenote_security.policy import SandboxPolicy

LIBRARIES = {
    "an attribute of a module": ("import tabnanny\ntabnanny.verbose = 5", "tabnanny.verbose", "5"),
    "an attribute of a class, by an alias": (
        "import json.encoder as enc\nenc.JSONEncoder.item_separator = ';'",
        "enc.JSONEncoder().encode([1, 2])",
        "'[1;2]'",
    ),
    "a method that has what a name has": (
        "import pprint\nshown = []\ndef _show(self, value): shown.append(value)\npprint.PrettyPrinter.show = _show",
        "(pprint.PrettyPrinter().show(1), shown, pprint.PrettyPrinter.show is _show)",
        "(None, [1], True)",
    ),
    "an attribute that is gone": (
        "import this\ndel this.i",
        "hasattr(this, 'i')",
        "False",
    ),
    "a table": ("import calendar\ncalendar.mdays[2] = 29", "calendar.mdays[2]", "29"),
    "a table that two modules have": (
        "import mimetypes\nmimetypes.init()\nmimetypes.types_map['.zz'] = 'a/b'",
        "(mimetypes.guess_type('x.zz')[0], mimetypes.types_map is mimetypes._db.types_map[True])",
        "('a/b', True)",
    ),
    "a registry that nobody sees": (
        "import sqlite3\nclass Pt: pass\nsqlite3.register_adapter(Pt, lambda pt: 'pt')",
        "sqlite3.connect(':memory:').execute('select ?', (Pt(),)).fetchone()",
        "('pt',)",
    ),
    "an abstract class": (
        "import collections.abc as kinds\nclass Sized: pass\nkinds.Sized.register(Sized)",
        "issubclass(Sized, kinds.Sized)",
        "True",
    ),
    "a dialect": (
        "import csv\ncsv.register_dialect('semi', delimiter=';')",
        "next(csv.reader(['a;b'], 'semi'))",
        "['a', 'b']",
    ),
    "a default": ("import socket\nsocket.setdefaulttimeout(7)", "socket.getdefaulttimeout()", "7.0"),
    "a built-in": ("import builtins\nbuiltins.more = lambda n: n + 1", "more(5)", "6"),
    "data of an own module": (
        "open('own_data.py', 'w').write('X = 1\\nL = []\\nclass C:\\n  y = 1\\n')\n"
        "import own_data\nown_data.X = 5\nown_data.L.append(3)\nown_data.C.y = 9",
        "(own_data.X, own_data.L, own_data.C.y)",
        "(5, [3], 9)",
    ),
    "a handler with a list": (
        "import logging\nclass Got(logging.Handler):\n"
        "  def __init__(self): super().__init__(); self.got = []\n"
        "  def emit(self, record): self.got.append(record.getMessage())\n"
        "got = Got()\nlog = logging.getLogger('its.own')\nlog.addHandler(got)\nlog.setLevel(10)\n"
        "log.propagate = False\nlog.debug('one')",
        "(log.debug('two'), got.got, log.handlers == [got], log.propagate)",
        "(None, ['one', 'two'], True, False)",
    ),
    "a log file that was begun anew": (
        "to_file = logging.getLogger('file')\nto_file.addHandler(logging.FileHandler('a.log', 'w'))\n"
        "to_file.warning('one')",
        "(to_file.warning('two'), open('a.log').read())",
        "(None, 'one\\ntwo\\n')",
    ),
    "a filter that sees a variable": (
        "bad = ['x']\ndef passes(record): return record.msg not in bad\nlogging.getLogger('flt').addFilter(passes)",
        "(bad.append('z'), logging.getLogger('flt').filter(logging.makeLogRecord({'msg': 'z'})))",
        "(None, False)",
    ),
    "a level with a name": ("logging.addLevelName(25, 'NOTICE')", "logging.getLevelName(25)", "'NOTICE'"),
    "warnings in a log": (
        "import warnings\nlogging.captureWarnings(True)\n"
        "logging.getLogger('py.warnings').addHandler(logging.FileHandler('w.log'))",
        "(warnings.warn('careful'), 'careful' in open('w.log').read())",
        "(None, True)",
    ),
    "the context of decimals": (
        "import decimal\nctx = decimal.getcontext()",
        "(setattr(ctx, 'prec', 5), str(decimal.Decimal(1) / 3))",
        "(None, '0.33333')",
    ),
    "a parser's defaults": (
        "from dateutil import parser\ninfo = parser.DEFAULTPARSER.info",
        "(setattr(info, 'dayfirst', True), parser.parse('02/03/2020').month)",
        "(None, 3)",
    ),
    "a generator that an object of a library has": (
        "import random\nparser.DEFAULTPARSER.chance = random.Random(3)\nfirst = parser.DEFAULTPARSER.chance.random()",
        "(first, parser.DEFAULTPARSER.chance.random())",
        "(0.23796462709189137, 0.5442292252959519)",
    ),
    "temporary files": (
        "import os, tempfile\nfolder = tempfile.mkdtemp()\nopen(f'{folder}/x', 'w').write('one')\n"
        "os.symlink('x', f'{folder}/link')\nos.link(f'{folder}/x', f'{folder}/other')\n"
        "named = tempfile.NamedTemporaryFile(delete=False)\nnamed.write(b'abc')\nnamed.close()",
        "(open(f'{folder}/other', 'a').write('!'), open(f'{folder}/link').read(), open(named.name).read())",
        "(1, 'one!', 'abc')",
    ),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str | None]]:
    """For each question: in the runtime itself, in a branch, in a branch of that one, and after a restore."""
    store = str(tmp_path_factory.mktemp("store"))
    found: dict[str, list[str | None]] = {case: [] for case in LIBRARIES}

    def ask(runtime: PythonRuntime) -> None:
        for case, (_, question, _) in LIBRARIES.items():
            result = runtime.execute(question)
            found[case].append(result.value if result.error is None else str(result.error.message))

    with PythonRuntime(store=store, name="a") as runtime:
        for code, _, _ in LIBRARIES.values():
            assert runtime.execute(code).success
        runtime.checkpoint("here")
        with runtime.fork(deterministic=True) as branch, branch.fork(deterministic=True) as second:
            ask(branch)
            ask(second)
        ask(runtime)
    with PythonRuntime.restore(store, "a", "here") as runtime:
        ask(runtime)
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("case", LIBRARIES)
def test_it_is_in_each_of_them(case: str, answers: dict[str, list[str | None]]) -> None:
    assert [LIBRARIES[case][2]] * 4 == answers[case]


@pytest.fixture
def runtime(tmp_path: str) -> Iterator[PythonRuntime]:
    with PythonRuntime(store=str(tmp_path), name="a") as runtime:
        yield runtime


def test_what_was_set_and_cannot_be_stored_is_named(runtime: PythonRuntime, tmp_path: str) -> None:
    """Under its own name, with the reason; the variables are exact all the same."""
    runtime.execute(
        "import string\nstring.busy = (n for n in range(3))\nimport codecs\ncodecs.register(lambda name: None)"
    )
    runtime.checkpoint("here")
    told = foretold(str(tmp_path), "a")
    differing = {thing.name: thing.reason for thing in told.differing}
    assert "generator" in differing["string.busy"]
    assert any("codecs" in each for each in differing)


ODD = """
class Odd:
    def __getattr__(self, name): raise RuntimeError(name)
class Has:
    odd = Odd()
odd, n = Odd(), 1
"""


@pytest.mark.parametrize(
    ("code", "ask", "expected"),
    [
        (f"open('own.py', 'w').write({ODD!r})\nimport own\nown.n = 2", "own.n", "2"),
        (
            "import pydantic\nclass A(pydantic.BaseModel): a: int = 1\n"
            "@pydantic.BaseModel.register\nclass B: pass\na = A(a=2)",
            "a.a",
            "2",
        ),
    ],
    ids=["own", "pydantic"],
)
def test_an_object_that_raises_for_unknown_names_costs_no_state(
    make: Make, fork: Fork, by_value: None, code: str, ask: str, expected: str
) -> None:
    """What modules have is looked at without the code of what they have."""
    runtime = make(sandbox=SandboxPolicy(preload=()))
    assert runtime.execute(code).success
    (branch,) = fork(runtime)
    assert expected == branch.execute(ask).value
