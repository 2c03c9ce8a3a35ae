"""Which tests run again: what functions report, and what a jail may claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote.harness.artifacts import Artifact
from cenote.harness.artifacts.test_suites import MAX_USED, read
from cenote_security.errors import MalformedValueError
from cenote_worker.history.events import RanTest, SuiteOutcome
from cenote_worker.jail.testing.suites import because
from cenote_worker.jail.testing.test_usage import digests_of

SUITE = Artifact("test_a.py", "tests")
SOURCE = """
RATE = 2
def f(x):
    return [y * RATE for y in x]
class Box:
    def size(self):
        return {1, 2}
g = lambda: 1
"""


def changed(tmp_path: Path, old: str, new: str) -> set[str]:
    """Names whose digests differ when the source is changed like this."""
    path = tmp_path / "a.py"
    path.write_text(SOURCE)
    before = digests_of(str(path))
    path.write_text(SOURCE.replace(old, new))
    after = digests_of(str(path))
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("y * RATE", "y + RATE", {"f.<locals>.<listcomp>"}),
        ("RATE = 2", "RATE = 3", {"<module>"}),
        ("def f(x):", "\n# a comment\ndef f(x):", set()),
        ("def f(x):", "def f(x=1):", {"<module>"}),
        ("{1, 2}", "{1, 3}", {"Box.size"}),
        ("lambda: 1", "lambda: 1.0", {"<lambda>"}),
        ("def f", "def new(): pass\ndef f", {"<module>", "new"}),
    ],
)
def test_a_function_differs_by_what_it_says(tmp_path: Path, old: str, new: str, names: set[str]) -> None:
    """Its position does not matter; code that runs on import is separate from code that is only defined then."""
    found = changed(tmp_path, old, new)
    assert names == found or (names == {"f.<locals>.<listcomp>"} and found == {"f"})  # inlined from 3.12 on


@pytest.mark.parametrize("source", [b"def f(:", b"\xff\xfe", b"\0"])
def test_a_file_that_is_no_python_has_no_functions(tmp_path: Path, source: bytes) -> None:
    """The same holds for a missing file."""
    (tmp_path / "a.py").write_bytes(source)
    assert ({}, {}) == (digests_of(str(tmp_path / "a.py")), digests_of(str(tmp_path / "b.py")))


def test_a_test_is_spared_while_all_it_used_is_the_same() -> None:
    """Unless it did not pass, or its result may vary anyway."""
    now = {"code:a.py:f": "1", "file:a.csv": "2"}.get
    good: dict[str, object] = {"outcome": "passed", "used": {"code:a.py:f": "1"}, "unsteady": ""}
    formers = [
        good,
        None,
        {**good, "outcome": "failed"},
        {**good, "unsteady": "it asks for the time"},
        {**good, "used": {"code:a.py:f": "1", "file:a.csv": "3"}},
        {**good, "used": {"code:a.py:gone": "1"}},
    ]
    reasons = ["", "new", "failed", "unsteady", "file:a.csv", "code:a.py:gone"]
    assert reasons == [because(former, lambda item: now(item, "")) for former in formers]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"suites": []},
        {"suites": [{"tests": [{"name": "test_a", "because": "new", "outcome": "splendid"}]}]},
        {"suites": [{"tests": [{"name": "test_never_ran", "because": ""}]}]},
        {"suites": [{"tests": "many"}]},
        {"suites": [{"tests": [{"name": "t", "because": "x", "outcome": "passed", "used": {1: "2"}}]}]},
    ],
)
def test_what_is_no_test_result_is_refused(answer: object) -> None:
    """The result is made by hostile code."""
    with pytest.raises(MalformedValueError):
        read(answer, [SUITE], {}, 1)


def test_results_are_read_within_bounds() -> None:
    """Texts are cut and escaped, spans are four numbers, and a test that used too many values runs each time."""
    error = {"type": "E\x1b[2J", "message": "m" * 10**6, "span": [1, 2, 3, -4], "traceback": "a\nb"}
    used = {f"name:{number}": "v" for number in range(MAX_USED + 1)}
    one = {"name": "t", "because": "new", "outcome": "failed", "error": error, "used": used, "seconds": 1e99}
    (run,) = read({"suites": [{"error": None, "tests": [one]}]}, [SUITE], {}, 7)
    (test,) = run.tests
    assert ("E\\x1b[2J", 5_000, (), "a\nb", {}, "it uses more than is kept", 0.0, 7) == (
        test.error_type,
        len(test.message),
        test.span,
        test.traceback,
        test.used,
        test.unsteady,
        test.seconds,
        test.step,
    )


def test_a_spared_test_keeps_its_result() -> None:
    """With the step that it ran at."""
    known = RanTest(name="t", outcome="passed", step=3)
    answer = {"suites": [{"error": None, "tests": [{"name": "t", "because": ""}]}]}
    former = {SUITE.name: SuiteOutcome(suite=SUITE.name, step=3, tests=(known,))}
    (run,) = read(answer, [SUITE], former, 9)
    assert ((known,), {}) == (run.tests, run.ran)
