"""What a history begins with, and why a fresh jail cannot begin with it."""

from __future__ import annotations

from cenote_worker.history.events import ValuesInjected
from cenote_worker.history.history import History
from cenote_worker.runtime.injection import NOTHING, Injection
from cenote_worker.runtime.injection_log import start_of, unkept_files
from cenote_worker.supervisor.requests import OWNER, AuthorSession


def put_in(*names: str, step: int = 0, seat: AuthorSession = OWNER) -> Injection:
    return Injection(values=NOTHING, names=names, step=step, seat=seat)


def begun(*values: ValuesInjected, names: tuple[str, ...] = ()) -> History:
    history = History()
    history.begins_with(names or [name for each in values for name in each.names], values=values)
    return history


def test_what_was_put_in_first_is_put_in_again_in_its_order() -> None:
    """By content, whatever was put in since: later values belong to their own steps."""
    history = begun(
        ValuesInjected(names=("a", "b"), content="1"), ValuesInjected(names=("ann/c",), content="2")
    )
    start = start_of(history, [put_in("d", step=3)], {"1", "2"}.__contains__)
    assert (("1", "2"), "") == (start.beginnings, start.obstacle)


def test_what_is_gone_has_to_be_there_again() -> None:
    """Put in before the first step under the same names, in one or more injections; otherwise its names are given."""
    history = begun(
        ValuesInjected(names=("a", "ann/b"), content="1"), ValuesInjected(names=("c",), content="2")
    )
    a, b = put_in("a", "more"), put_in("b", seat=AuthorSession(author="ann", private=True))
    start = start_of(history, [a, b, put_in("c", step=3)], {"2"}.__contains__)
    assert ((a, b, "2"), "") == (start.beginnings, start.obstacle)
    start = start_of(history, [a, put_in("b")], {"2"}.__contains__)
    assert "`ann/b`, put in before the first step, is not here any more" == start.obstacle


def test_histories_that_do_not_tell_go_by_names() -> None:
    """Histories that an older version of Cenote has written."""
    history = begun(names=("a", "b"))
    both = put_in("a", "b")
    assert (both,) == start_of(history, [both, put_in("a", step=2)], lambda _: False).beginnings
    assert ("b",) == start_of(history, [put_in("a")], lambda _: False).missing


def test_what_a_client_has_deleted_need_not_be_there() -> None:
    """Before the first step."""
    history = begun(ValuesInjected(names=("a", "b"), content="gone"), names=("b",))
    assert ("b",) == start_of(history, [], lambda _: False).missing


def test_files_whose_content_is_not_kept_are_not_written_again() -> None:
    """They are named; beyond the limit the text says that there are more."""
    history = History()
    history.begins_with((), {"kept": "0f", "large": "", "": ""})
    expected = "the content of `large`, further files, written before the first step, is not kept"
    assert expected == unkept_files(history)
