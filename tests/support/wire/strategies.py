"""Values as runtimes produce them: any text that Python can print, any size that fits."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st

from cenote_security.printable import printable
from cenote_worker.egress.ledger import Decision
from cenote_worker.execution.results import (
    CellUsage,
    ErrorInfo,
    ExecutionResult,
    FileInfo,
    JailStatus,
    LiveOutput,
    Span,
    VariableInfo,
)

texts = st.text(max_size=40)
"""Without lone surrogates, which have a separate test."""

names = texts.map(printable)
shown_lines = texts.map(partial(printable, lines=True))
"""Descriptions of variables and of errors."""

sizes = st.integers(0, 2**63 - 1)
seconds = st.floats(0, 1e9)
lines = st.integers(0, 2**31)

spans = st.builds(Span, line=lines, column=lines, end_line=lines, end_column=lines)
errors = st.builds(
    ErrorInfo,
    type=names,
    message=shown_lines,
    traceback=shown_lines,
    span=st.none() | spans,
    reason=st.text(min_size=1, max_size=40).map(printable),
)
usages = st.builds(
    CellUsage, wall=seconds, cpu=seconds, peak_memory=sizes, bytes_written=sizes, output_bytes=sizes
)
bundles = st.dictionaries(texts, texts | st.binary(max_size=40), max_size=3)
results = st.builds(
    ExecutionResult,
    success=st.booleans(),
    stdout=texts,
    stderr=texts,
    value=st.none() | texts,
    outputs=st.lists(bundles, max_size=3).map(tuple),
    error=st.none() | errors,
    step=sizes,
    duration=seconds,
    state=st.sampled_from(["kept", "rolled_back", "lost"]),
    truncated=st.booleans(),
    reply=st.none() | texts,
    usage=usages,
    unkept=texts,
    back_at=st.none() | st.integers(0, 2**62),
    kept_as=st.sampled_from(("", "copy", "cells")),
    news=st.lists(texts, max_size=2).map(tuple),
)
statuses = st.builds(
    JailStatus,
    memory=sizes,
    processes=sizes,
    step=st.none() | st.integers(1, 2**63),
    isolation=texts,
    limits=texts,
)
looks = st.builds(
    LiveOutput,
    step=st.none() | st.integers(1, 2**63),
    author=texts,
    pieces=st.lists(st.tuples(st.sampled_from(("stdout", "stderr")), texts), max_size=4).map(tuple),
    missed=st.integers(0, 2**62),
    end=st.integers(200, 2**62),
)
infos = st.builds(
    VariableInfo,
    name=names,
    type=names,
    shape=st.none() | st.lists(sizes, max_size=5).map(tuple),
    size=sizes,
    description=names,
)
files = st.builds(
    FileInfo,
    raw=st.binary(max_size=40),
    kind=st.sampled_from(["file", "folder", "link", "other"]),
    size=sizes,
    modified=seconds,
)
decisions = st.builds(
    Decision,
    at=seconds,
    kind=st.sampled_from(["tunnel", "http", "unread"]),
    host=texts,
    port=st.integers(0, 65_535),
    address=texts,
    allowed=st.booleans(),
    reason=texts,
)
