"""Events as messages: the round trip is exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.history.records import records, texts

from cenote_proto.v1 import history_pb2
from cenote_security.errors import MalformedValueError
from cenote_security.printable import printable
from cenote_worker.execution.results import VariableInfo
from cenote_worker.history.events import (
    ArtifactDeclared,
    EnvironmentUsed,
    Event,
    FileStored,
    HeadMoved,
    InitialNames,
    RanTest,
    SuiteOutcome,
    ValueDropped,
    ValuesInjected,
    ValueStored,
    VariablesDescribed,
)
from cenote_worker.history.messages import from_event, to_event

infos = st.builds(
    VariableInfo,
    name=texts.map(printable),
    type=texts.map(printable),
    shape=st.none() | st.just((3, 4)),
    size=st.integers(0, 9),
)
used = st.dictionaries(texts, texts, max_size=2)
test_records = st.builds(
    RanTest,
    name=texts,
    outcome=texts,
    error_type=texts,
    message=texts,
    file=texts,
    span=st.just(()) | st.just((1, 0, 1, 9)),
    traceback=texts,
    used=used,
    unsteady=texts,
    seconds=st.just(0.5),
    step=st.integers(0, 9),
)
put_in = st.builds(ValuesInjected, names=st.lists(texts).map(tuple), content=texts, replaces=st.booleans())
events: st.SearchStrategy[Event] = st.one_of(
    records(),
    st.builds(HeadMoved, head=st.integers(0, 9), reason=texts),
    st.builds(
        InitialNames,
        names=st.lists(texts).map(tuple),
        files=st.dictionaries(texts, texts, max_size=2),
        values=st.lists(put_in, max_size=2).map(tuple),
    ),
    st.builds(FileStored, digest=texts, data=st.none() | st.binary(max_size=9)),
    st.builds(ValueStored, digest=texts, data=st.none() | st.binary(max_size=9)),
    st.builds(ValueDropped, content=texts),
    st.builds(
        VariablesDescribed,
        step=st.integers(0, 9),
        variables=st.lists(infos).map(tuple),
        gone=st.lists(texts).map(tuple),
    ),
    st.builds(
        ArtifactDeclared,
        name=texts,
        kind=texts,
        depends_on=st.lists(texts, max_size=2).map(tuple),
        author=texts,
        step=st.integers(0, 9),
        dropped=st.booleans(),
    ),
    st.builds(
        EnvironmentUsed,
        digest=texts,
        python=texts,
        packages=st.lists(texts, max_size=2).map(tuple),
        lock=texts,
        after=st.integers(0, 9),
    ),
    st.builds(
        SuiteOutcome,
        suite=texts,
        step=st.integers(0, 9),
        tests=st.lists(test_records, max_size=2).map(tuple),
        units=used,
    ),
)


@given(events)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    """Each field, empty ones distinct from missing ones."""
    assert event == to_event(from_event(event))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff",
        history_pb2.HistoryEvent(step=history_pb2.Step(number=1, kind=99)).SerializeToString(),  # type: ignore[arg-type]
    ],
    ids=["empty", "noise", "a later kind"],
)
def test_what_this_version_does_not_write_is_refused(data: bytes) -> None:
    """Nothing is guessed."""
    with pytest.raises(MalformedValueError):
        to_event(data)
