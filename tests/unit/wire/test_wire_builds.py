"""The result of a build is the same after the wire, and in a journal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.wire.strategies import sizes, texts
from tests.unit.wire.test_wire_patches import facts, numbers
from tests.unit.wire.test_wire_patches import outcomes as patches

from cenote_proto.v1 import journal_pb2, runtime_pb2
from cenote_worker.execution.results import Built, PatchedStep, PatchRefusal
from cenote_worker.record.journal import from_entry, to_entry
from cenote_worker.wire.patches import from_built, to_built

kept = st.builds(PatchedStep, origin=sizes)
changed = st.builds(
    PatchedStep, origin=sizes, change=texts.filter(bool), code=texts | st.just("lone \ud800 surrogate")
)
outcomes = st.builds(
    Built,
    status=st.sampled_from(["built", "failed", "blocked", "cancelled", "refused"]),
    head=sizes,
    rebuilt=st.lists(texts, max_size=3).map(tuple),
    applied=st.none() | patches,
    steps=st.lists(kept | changed, max_size=4).map(tuple),
    before=sizes,
    suites=numbers,
    ran=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    refusal=st.none() | st.builds(PatchRefusal, kind=st.just("stale"), facts=facts, message=st.just("why")),
)


@given(outcomes)
def test_an_outcome(outcome: Built) -> None:
    """Every field, including the code of each step; to a client, and to a successor."""
    message = from_built(outcome).SerializeToString()
    assert outcome == to_built(runtime_pb2.Built.FromString(message))
    entry = to_entry("key", outcome).SerializeToString()
    assert outcome == from_entry(journal_pb2.Settled.FromString(entry))


def test_what_does_not_add_up() -> None:
    """An unknown status is a refusal; a step without its code has none."""
    message = runtime_pb2.Built(status=77, steps=[runtime_pb2.PatchedStep(change="new")])  # type: ignore[arg-type]
    read = to_built(message)
    assert ("refused", (PatchedStep(origin=0, change="new"),)) == (read.status, read.steps)
