"""Requests to run test suites in a jail, and their results. Pure.

Results come from code in the jail and are not trusted: they are parsed into plain records, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cenote.harness.artifacts.declaration import Artifact
from cenote_security.errors import MalformedValueError
from cenote_security.printable import printable
from cenote_worker.history.events import RanTest, SuiteOutcome

MAX_TESTS: Final = 5_000
MAX_USED: Final = 2_000
"""Of one test; one that used more is run each time."""

_MAX_TEXT: Final = 5_000
Plain = dict[str, object]
_OUTCOMES: Final = ("passed", "failed", "error")

ANSWER: Final = "_tested"
"""The name that the answer has in the namespace, until that is as it was before."""


def request(suites: Sequence[Artifact], former: Mapping[str, SuiteOutcome], seconds: float) -> str:
    """The cell that runs suites. former: what came of them last.

    What tests used is listed once: those of a suite share most of it, and the cell stays in the history.
    """
    numbers: dict[tuple[str, str], int] = {}
    asked = {
        "seconds": seconds,
        "suites": [
            {"name": suite.name, "file": suite.is_file, "former": _former(former.get(suite.name), numbers)}
            for suite in suites
        ],
        "items": list(numbers),
    }
    return (
        "from cenote_worker.jail.testing import suites as _suites\n"
        f"{ANSWER} = _suites.run(globals(), {asked!r})"
    )


def _former(suite: SuiteOutcome | None, numbers: dict[tuple[str, str], int]) -> dict[str, object]:
    found: dict[str, object] = {}
    for test in suite.tests if suite is not None else ():
        used = [numbers.setdefault(item, len(numbers)) for item in test.used.items()]
        found[test.name] = {"outcome": test.outcome, "used": used, "unsteady": test.unsteady}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """What came of a suite now. ran: tests that were run, with the reason by name; the others need not have been."""

    suite: Artifact
    tests: tuple[RanTest, ...]
    ran: Mapping[str, str]


def read(
    answer: object, suites: Sequence[Artifact], former: Mapping[str, SuiteOutcome], step: int
) -> tuple[SuiteRun, ...]:
    """The suites, in their order. One that cannot be loaded has one test, of its own name. step: the head.

    Raises MalformedValueError.
    """
    found = _list(_dict(answer).get("suites"))
    if len(found) != len(suites):
        raise MalformedValueError("results of other test suites than those that were asked for")
    return tuple(
        _suite(_dict(each), suite, former.get(suite.name), step)
        for suite, each in zip(suites, found, strict=True)
    )


def _suite(found: Plain, suite: Artifact, known: SuiteOutcome | None, step: int) -> SuiteRun:
    if found.get("error") is not None:
        whole = _test({"name": suite.name, "outcome": "error", "error": found["error"]}, step)
        return SuiteRun(suite=suite, tests=(whole,), ran={suite.name: "new"})
    before = {test.name: test for test in known.tests} if known is not None else {}
    tests, ran = list[RanTest](), dict[str, str]()
    for one in map(_dict, _list(found.get("tests"))[:MAX_TESTS]):
        name, reason = _text(one.get("name")), _text(one.get("because"))
        if reason:
            ran[name] = reason
            tests.append(_test(one, step))
        elif name in before:
            tests.append(before[name])
        else:
            raise MalformedValueError("a test that never ran is said to hold still")
    return SuiteRun(suite=suite, tests=tuple(tests), ran=ran)


def _test(found: Plain, step: int) -> RanTest:
    outcome = _text(found.get("outcome"))
    if outcome not in _OUTCOMES:
        raise MalformedValueError("a test with an outcome that there is not")
    error = _dict(found.get("error") or {})
    used = {_text(item): _text(version) for item, version in _dict(found.get("used") or {}).items()}
    unsteady = _text(found.get("unsteady"))
    if len(used) > MAX_USED:
        used, unsteady = {}, "it uses more than is kept"
    return RanTest(
        name=_text(found.get("name")),
        outcome=outcome,
        error_type=_text(error.get("type")),
        message=_text(error.get("message")),
        file=_text(error.get("file")),
        span=_span(error.get("span")),
        traceback=printable(_raw(error.get("traceback")), lines=True),
        used=MappingProxyType(used),
        unsteady=unsteady,
        seconds=_seconds(found.get("seconds")),
        step=step,
    )


def _dict(value: object) -> Plain:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise MalformedValueError("test results that are none")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise MalformedValueError("test results that are no list")
    return value


def _text(value: object) -> str:
    return printable(_raw(value))


def _raw(value: object) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else ""


def _span(value: object) -> tuple[int, ...]:
    numbers = [each for each in _list(value or []) if isinstance(each, int) and 0 <= each < 2**31]
    return tuple(numbers) if len(numbers) == 4 else ()


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0
