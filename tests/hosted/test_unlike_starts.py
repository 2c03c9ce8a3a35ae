"""Why a fresh jail does not begin as a history does."""

from __future__ import annotations

from cenote_worker.history.history import History
from cenote_worker.hosted.injection import NOTHING, Injection
from cenote_worker.hosted.unlike_starts import otherwise, unkept_files
from cenote_worker.supervisor.requests import OWNER, Seat


def put_in(*names: str, step: int = 0, seat: Seat = OWNER) -> Injection:
    return Injection(values=NOTHING, names=names, step=step, seat=seat)


def test_what_was_put_in_since_is_not_the_start() -> None:
    """Unless the jail began with it that the history begins with, as behind a reset."""
    history = History()
    history.begins_with(["a"])
    first, later = put_in("a"), put_in("b", "c", step=3)
    assert "" == otherwise(history, [first], [])
    assert "a client has put in `b`, `c` since" == otherwise(history, [first, later], [])
    assert "" == otherwise(history, [first, later], [first, later])


def test_what_was_there_at_first_has_to_be_there() -> None:
    """Private names are those of their author; what is there besides is for the versions to tell."""
    history = History()
    history.begins_with(["a", "ann/b"])
    ann = Seat(author="ann", private=True)
    assert "" == otherwise(history, [put_in("a", "more"), put_in("b", seat=ann)], [])
    assert "`ann/b`, put in before the first step, is not here any more" == otherwise(
        history, [put_in("a", "b")], []
    )


def test_files_whose_content_is_not_kept_are_not_written_again() -> None:
    """They are named; of more than can be told it is said that there are more."""
    history = History()
    history.begins_with((), {"kept": "0f", "large": "", "": ""})
    expected = "the content of `large`, further files, written before the first step, is not kept"
    assert expected == unkept_files(history)
