"""The result of a patch is the same after the wire, and in a journal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.wire.strategies import seconds, sizes, texts

from cenote_proto.v1 import journal_pb2, runtime_pb2
from cenote_security.errors import CallTimeoutError
from cenote_worker.execution.results import Patched, PatchRefusal, UnmadeCall
from cenote_worker.record.journal import from_entry, to_entry
from cenote_worker.supervisor.frame_parser import RefusedReply
from cenote_worker.wire.patches import MAX_FACTS, from_patched, to_patched

numbers = st.lists(sizes, max_size=3).map(tuple)
facts = st.lists(st.none() | texts | st.integers(), max_size=3).map(tuple)
outcomes = st.builds(
    Patched,
    status=st.sampled_from(["applied", "failed", "blocked", "cancelled", "refused"]),
    head=sizes,
    rerun=numbers,
    reused=numbers,
    changed=st.lists(texts, max_size=3).map(tuple),
    cut_offs=numbers,
    seconds_saved=seconds,
    records=numbers,
    failure=sizes,
    blocked=st.none() | st.builds(UnmadeCall, target=texts, method=texts, arguments=texts),
    aside=sizes,
    refusal=st.none() | st.builds(PatchRefusal, kind=st.just("stale"), facts=facts, message=st.just("why")),
)


@given(outcomes)
def test_an_outcome(outcome: Patched) -> None:
    """Every field, including None; to a client, and to a successor."""
    message = from_patched(outcome).SerializeToString()
    assert outcome == to_patched(runtime_pb2.Applied.FromString(message))
    entry = to_entry("key", outcome).SerializeToString()
    assert outcome == from_entry(journal_pb2.Settled.FromString(entry))


def test_a_refusal_that_cannot_be_read_keeps_its_text() -> None:
    """Facts that are not JSON, or too many of them: its kind is unknown then."""
    for facts in (["{"], ['"x"' * 2], ['"' + "x" * MAX_FACTS + '"']):
        message = runtime_pb2.Applied(status=runtime_pb2.Applied.REFUSED)
        message.refusal.kind, message.refusal.message = "stale", "why"
        message.refusal.facts.extend(facts)
        assert PatchRefusal(kind="", facts=(), message="why") == to_patched(message).refusal


def test_an_outcome_of_a_later_version() -> None:
    """An unknown status is a refusal."""
    assert "refused" == to_patched(runtime_pb2.Applied(status=77)).status  # type: ignore[arg-type]


def test_a_call_that_took_too_long_is_no_lost_jail() -> None:
    """A caller that asks a successor for the outcome gets the answer that nothing has changed."""
    outcome = from_entry(to_entry("key", CallTimeoutError(3)))
    assert isinstance(outcome, RefusedReply)
    assert "took longer than 3 s" in outcome.message
