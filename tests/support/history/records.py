"""Steps for tests: simple ones by hand, and arbitrary ones by Hypothesis."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import MappingProxyType

from hypothesis import strategies as st

from cenote_security.printable import printable
from cenote_worker.execution.results import CellUsage, ErrorInfo, HostFailure, Span
from cenote_worker.execution.trace import Location, StepTrace, Version, name
from cenote_worker.history.step import HostCallRecord, StepRecord


def traced(
    *, reads: Iterable[str] = (), writes: Iterable[str] = (), version: str = "v", **more: object
) -> StepTrace:
    """The trace of variables, by their names; each written one has this version."""
    return StepTrace(
        reads=MappingProxyType({name(each): Version("") for each in reads}),
        writes=MappingProxyType({name(each): Version(version) for each in writes}),
        **more,  # type: ignore[arg-type]
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
locations = st.sampled_from(["name:x", "name:y", "file:a.csv", "hidden:random", "*"]).map(Location)
versions = st.dictionaries(locations, texts.map(Version), max_size=3).map(MappingProxyType)
groups = st.lists(st.frozensets(locations, max_size=3), max_size=2).map(tuple)
reasons = st.lists(texts, max_size=2).map(tuple)
traces = st.builds(
    StepTrace,
    reads=versions,
    writes=versions,
    mutated=st.frozensets(locations),
    groups=groups,
    modules=reasons,
    opaque=reasons,
    unrepeatable=reasons,
    unportable=st.dictionaries(locations, texts, max_size=2).map(MappingProxyType),
)
spans = st.builds(Span, line=st.just(1), column=st.just(0), end_line=st.just(1), end_column=st.integers(0, 9))
errors = st.builds(
    ErrorInfo,
    type=texts.map(printable),
    message=texts.map(partial(printable, lines=True)),
    traceback=texts.map(partial(printable, lines=True)),
    span=st.none() | spans,
    reason=st.text(min_size=1, max_size=40).map(printable),
)
calls = st.builds(
    HostCallRecord,
    target=texts,
    method=texts,
    effect=st.sampled_from(["external", "idempotent", "pure"]),
    digest=texts,
    arguments=st.none() | st.binary(max_size=9),
    reply=st.none() | st.binary(max_size=9),
    parts=st.integers(0, 3),
    error=st.none() | st.builds(HostFailure, texts, texts, st.just(()) | st.just((HostFailure("A", "b"),))),
)
times = st.floats(0, 2e9, allow_nan=False)
bundles = st.dictionaries(texts, texts | st.binary(max_size=9), max_size=2)


def records(number: int = 1, parent: int = 0) -> st.SearchStrategy[StepRecord]:
    """Any record with this number."""
    return st.builds(
        StepRecord,
        number=st.just(number),
        parent=st.just(parent),
        origin=st.integers(0, 3),
        outcome=st.sampled_from(["executed", "reused"]),
        kind=st.sampled_from(["cell", "injection", "deletion", "upload", "removal", "unrecorded"]),
        code=st.text(max_size=20),  # lone surrogates included: Python's source may be any text
        names=reasons,
        content=texts,
        author=texts,
        private=st.booleans(),
        cause=texts,
        status=st.sampled_from(["ok", "failed", "rolled_back", "lost", "refused"]),
        stdout=texts,
        stderr=texts,
        value=st.none() | texts,
        outputs=st.lists(bundles, max_size=2).map(tuple),
        error=st.none() | errors,
        reply=st.none() | texts,
        shed=st.booleans(),
        trace=st.none() | traces,
        host_calls=st.lists(calls, max_size=2).map(tuple),
        kept_as=st.sampled_from(["", "copy", "cells"]),
        dropped_calls=st.integers(0, 9),
        started=times,
        duration=times,
        usage=st.builds(CellUsage, wall=times, cpu=times, peak_memory=st.integers(0, 2**40)),
    )
