"""What was declared and tested, as messages and back."""

from __future__ import annotations

from types import MappingProxyType

from cenote_proto.scalars import utf8_items, utf8_text, utf8_texts
from cenote_proto.v1 import history_pb2
from cenote_worker.history.events import Declared, RanTest, SuiteOutcome


def fill_declared(message: history_pb2.UnitDeclared, event: Declared) -> None:
    message.name, message.kind, message.author = utf8_texts((event.name, event.kind, event.author))
    message.depends_on.extend(utf8_texts(event.depends_on))
    message.step, message.dropped = event.step, event.dropped


def to_declared(message: history_pb2.UnitDeclared) -> Declared:
    return Declared(
        name=message.name,
        kind=message.kind,
        depends_on=tuple(message.depends_on),
        author=message.author,
        step=message.step,
        dropped=message.dropped,
    )


def fill_tested(message: history_pb2.SuiteTested, event: SuiteOutcome) -> None:
    message.SetInParent()
    message.suite, message.step = utf8_text(event.suite), event.step
    message.units.update(utf8_items(event.units))
    for test in event.tests:
        _fill_test(message.tests.add(), test)


def to_tested(message: history_pb2.SuiteTested) -> SuiteOutcome:
    return SuiteOutcome(
        suite=message.suite,
        step=message.step,
        tests=tuple(map(_to_test, message.tests)),
        units=MappingProxyType(dict(message.units)),
    )


def _fill_test(message: history_pb2.TestRun, test: RanTest) -> None:
    message.name, message.outcome = utf8_text(test.name), utf8_text(test.outcome)
    message.error_type, message.message = utf8_text(test.error_type), utf8_text(test.message)
    message.file, message.traceback = utf8_text(test.file), utf8_text(test.traceback)
    message.span.extend(test.span)
    message.used.update(utf8_items(test.used))
    message.unsteady, message.seconds, message.step = utf8_text(test.unsteady), test.seconds, test.step


def _to_test(message: history_pb2.TestRun) -> RanTest:
    return RanTest(
        name=message.name,
        outcome=message.outcome,
        error_type=message.error_type,
        message=message.message,
        file=message.file,
        span=tuple(message.span),
        traceback=message.traceback,
        used=MappingProxyType(dict(message.used)),
        unsteady=message.unsteady,
        seconds=message.seconds,
        step=message.step,
    )
