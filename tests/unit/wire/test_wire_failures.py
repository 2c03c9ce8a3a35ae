"""One table of errors: each comes out unchanged, and none is missing."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from cenote_proto.v1.failure_pb2 import Failure
from cenote_security import errors
from cenote_worker.checkpoints import errors as checkpoints
from cenote_worker.wire.failures import MAX_FACTS, TABLE, Row, status_of, to_error, to_failure

FACTS = {
    errors.UnknownNameError: ("x", ("y", "z")),
    errors.UnknownEntryError: ("job", "x"),
    errors.EntryExistsError: ("job", "x"),
    errors.NotTransferableError: ("x", "why"),
    errors.RolledBackError: ("why", 3),
    errors.FileRefusedError: ("p", "why"),
    errors.RuntimeExpiredError: (2.5,),
    errors.CallTimeoutError: (2.5,),
    errors.UnsafeValueError: ("a.B", "detail"),
    errors.IsolationUnavailableError: ("strict", ("one", "two"), "do that"),
    errors.JailStartError: ("mount /proc", 13, "not permitted"),
    errors.OutcomeUnknownError: ("r", "k", "why"),
    errors.QuotaExceededError: ("memory", 3, 2, 4, "bytes", "delete a runtime"),
    errors.ScopeMissingError: ("references", ("runtimes:read", "teams")),
    checkpoints.StoreFailedError: ("there", "no space"),
    checkpoints.CheckpointDamagedError: ("r", 3, ("a chunk",), (2, 1)),
    checkpoints.IncompleteRestoreError: ("r", 3, ("f: a generator",)),
    checkpoints.IncompleteForkError: (("f: a generator",),),
    checkpoints.NotDurableError: (None, "no space"),
}
"""Arguments of constructors that take more than one text."""


def made(row: Row) -> errors.CenoteError:
    return row.error(*FACTS.get(row.error, ("one fact",)))


def all_errors(base: type[errors.CenoteError]) -> Iterator[type[errors.CenoteError]]:
    for error in base.__subclasses__():
        yield error
        yield from all_errors(error)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.error.__name__)
def test_an_error(row: Row) -> None:
    """The same class, text and facts. No row hides another, and none is an internal failure."""
    error = made(row)
    failure = to_failure(error)
    back = to_error(Failure.FromString(failure.SerializeToString()))
    assert (type(error), str(error), error.args) == (type(back), str(back), back.args)
    assert row.kind == failure.kind
    assert grpc.StatusCode.INTERNAL != status_of(error)
    assert [row] == [other for other in TABLE if other.kind == row.kind or other.error is row.error]


def test_every_error_has_a_row() -> None:
    """Its own row, or that of a family it belongs to."""
    listed = tuple(row.error for row in TABLE)
    ours = (errors.__name__, checkpoints.__name__)
    mine = [error for error in all_errors(errors.CenoteError) if error.__module__ in ours]
    assert [] == [error for error in mine if not issubclass(error, listed)]


def test_an_error_outside_the_table() -> None:
    """It keeps its text."""
    failure = to_failure(errors.CenoteError("something else"))
    assert Failure.UNSPECIFIED == failure.kind
    assert "something else" == str(to_error(failure))
    assert grpc.StatusCode.INTERNAL == status_of(errors.CenoteError("something else"))


@pytest.mark.parametrize(
    "failure",
    [
        Failure(kind=Failure.UNKNOWN_NAME, message="text", facts=['"x"']),
        Failure(kind=Failure.UNKNOWN_NAME, message="text", facts=['"x"', "{"]),
        Failure(kind=Failure.NAME_EXISTS, message="text", facts=["9" * (MAX_FACTS + 1)]),
        Failure(kind=Failure.EXPIRED, message="text", facts=['"soon"']),
        Failure(kind=999, message="text"),  # type: ignore[arg-type]
    ],
    ids=["too few facts", "facts that are no JSON", "endless facts", "facts of another kind", "unknown kind"],
)
def test_a_failure_of_another_version(failure: Failure) -> None:
    """It keeps its text, for any facts."""
    assert "text" == str(to_error(failure))


def test_facts_that_nest_without_end() -> None:
    """A peer cannot exhaust the stack of the reader of its failure."""
    nested = "[" * 4_000 + "]" * 4_000
    assert "text" == str(to_error(Failure(kind=Failure.NAME_EXISTS, message="text", facts=[nested])))


HOSTILE = "\x1b]0;title\x07\x00\u202e"


HALF = "\ud83d"


def spoilt(fact: object, text: str) -> object:
    if isinstance(fact, tuple):
        return tuple(spoilt(each, text) for each in fact)
    return text if isinstance(fact, str) else fact


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.error.__name__)
def test_the_text_of_an_error_is_printable(row: Row) -> None:
    """Here and where it arrives, since Python prints it by itself. The parts of the text stay unchanged, except for
    half a pair, which UTF-8 cannot write; the class is the same for that, too."""
    for text in (HOSTILE, HALF):
        facts = tuple(spoilt(fact, text) for fact in FACTS.get(row.error, ("one fact",)))
        error = row.error(*facts)
        back = to_error(Failure.FromString(to_failure(error).SerializeToString()))
        assert type(error) is type(back)
        for each in (error, back) if text == HOSTILE else ():
            assert str(each).replace("\n", "").isprintable()
            assert facts == each.args[: len(facts)]


def test_an_error_of_the_users_own_is_printable_too() -> None:
    """A class that derives from one of ours need not handle it, nor one that extends its parent's text."""

    class Own(errors.UsageError):
        def __str__(self) -> str:
            return f"own: {super().__str__()}\n{HOSTILE}"

    class Plain(Own): ...

    assert "own: \\x1b[2J\n\\x1b]0;title\\x07\\x00\\u202e" == str(Own("\x1b[2J")) == str(Plain("\x1b[2J"))
