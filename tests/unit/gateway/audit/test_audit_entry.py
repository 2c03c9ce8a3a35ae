"""One entry of the audit log: its canonical form, what it may contain, what the platform records."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cenote.gateway.audit import events
from cenote.gateway.audit.entries import (
    MAX_LINE,
    NO_HASH,
    SLOT_BYTES,
    START,
    AuditEntry,
    AuditEvent,
    BrokenLineError,
    after,
    before,
    follow,
    head_slot,
    mark_of,
    parse_line,
    read_head,
)
from cenote.gateway.audit.events import Subject
from cenote_security.errors import UsageError
from cenote_security.network import Allow
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.egress.ledger import Decision
from cenote_worker.execution.results import CellUsage, ErrorInfo, ExecutionResult
from cenote_worker.tenancy.audit_events import EventOrigin, NetworkAuditEvent, cell_audit_event, code_of

KEY = bytes(32)
ACME = Subject(tenant="tn_acme", token="t1", runtime="rt_1")
FIRST = after(START, AuditEvent(kind="test", facts={"a": 1}), at=1_750_000_000_000_000)

facts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
an_event = st.builds(
    AuditEvent,
    kind=st.text(),
    tenant=st.text(),
    token=st.text(),
    runtime=st.text(),
    facts=st.dictionaries(st.text(), facts, max_size=4),
)


def test_the_spelling_is_fixed() -> None:
    """Logs are stored for years: any change to the form, or to what is hashed, breaks their verification."""
    entry = (
        b'{"at":1750000000000000,"facts":{"a":1},"kind":"test","number":1,"previous":"%s","runtime":"","tenant":"",'
        b'"token":""}' % NO_HASH.encode()
    )
    digest = b"aa3aec7a"
    assert b'{"entry":' + entry + b',"hash":"' + digest == FIRST.line()[: len(entry) + 18 + 8]


@settings(deadline=None)
@example(AuditEvent(kind="\x7f\x1b[2J\r\n\x9b", facts={"\x7f": "\ud800\u2028"}), 0)
@given(an_event, st.integers(0))
def test_an_entry_is_read_back_from_one_printable_line(event: AuditEvent, at: int) -> None:
    """Whatever a hostile name contains: no control character, no second line, nothing beyond ASCII."""
    entry = after(mark_of(FIRST), event, at)
    line = entry.line()
    assert line.endswith(b"\n")
    assert set(line[:-1]) <= set(range(0x20, 0x7F))
    assert entry.hash == follow(mark_of(FIRST), line).hash
    assert mark_of(FIRST) == before(entry)


@settings(deadline=None)
@given(st.integers(0, len(FIRST.line()) - 1), st.integers(0, 255))
def test_each_byte_counts(place: int, byte: int) -> None:
    """There is one canonical form: a line that differs in any byte is not the entry."""
    line = bytearray(FIRST.line())
    changed = line[place] != byte
    line[place] = byte
    if changed:
        with pytest.raises(BrokenLineError):
            parse_line(bytes(line))
    else:
        assert parse_line(bytes(line)) == FIRST


def rehashed(**changes: object) -> bytes:
    """A forged line whose hash is recomputed."""
    return replace(FIRST, **changes).line()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not an entry"),
        (b"{}\n", "not an entry"),
        (b"[]\n", "not an entry"),
        (b"\xff\n", "not an entry"),
        (b"[" * 100_000, "not an entry"),
        (b"9" * 5000, "not an entry"),
        (b"x" * (MAX_LINE + 1), "longer than any entry"),
        (FIRST.line()[:-1], "does not match"),
        (FIRST.line() + b"\n", "does not match"),
        (FIRST.line().replace(b'"a":1', b'"a": 1'), "does not match"),
        (FIRST.line().replace(b'"a":1', b'"a":1.0'), "not an entry"),
        (FIRST.line().replace(b'"a":1', b'"a":1,"a":1'), "does not match"),
        (FIRST.line().replace(b'"facts"', b'"facto"'), "not an entry"),
        (FIRST.line().replace(b'"number":1', b'"number":true'), "not an entry"),
        (FIRST.line().replace(b'"kind":"test"', b'"kind":7'), "not an entry"),
        (FIRST.line().replace(b'"token":""', b'"token":"","x":1'), "not an entry"),
    ],
    ids=str,
)
def test_what_is_no_line(line: bytes, reason: str) -> None:
    """Garbage, other spellings, missing and additional keys, nesting that would exhaust the stack are refused."""
    with pytest.raises(BrokenLineError, match=reason):
        parse_line(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [(rehashed(number=2), "entry 2, where 1 belongs"), (rehashed(previous="f" * 64), "was exchanged")],
)
def test_an_entry_in_the_wrong_place(line: bytes, reason: str) -> None:
    """The entry is valid by itself, but does not follow the previous one."""
    with pytest.raises(BrokenLineError, match=reason):
        follow(START, line)


@pytest.mark.parametrize("fact", [1.5, b"bytes", {1, 2}, object()], ids=["float", "bytes", "set", "object"])
def test_what_has_no_place_in_a_log(fact: object) -> None:
    """Values that other languages would write in another way, and values that are not data, are refused."""
    with pytest.raises(UsageError, match="the audit log keeps no"):
        after(START, AuditEvent(kind="test", facts={"list": [fact]}), 0).line()  # type: ignore[list-item]


def test_an_entry_is_bounded() -> None:
    """At the limit an entry is accepted; one byte more is refused."""
    room = MAX_LINE - len(entry_with("").line())
    assert MAX_LINE == len(entry_with("x" * room).line())
    with pytest.raises(UsageError, match=f"up to {MAX_LINE} bytes"):
        entry_with("x" * (room + 1)).line()


def entry_with(text: str) -> AuditEntry:
    return after(START, AuditEvent(kind="test", facts={"text": text}), 0)


def test_a_head_is_read_from_either_slot() -> None:
    """The newer head counts; a torn or forged one is ignored."""
    old, new = head_slot(mark_of(FIRST), KEY), head_slot(mark_of(after(mark_of(FIRST), FIRST.event, 0)), KEY)
    for slot, content in enumerate((new + old, old + new)):
        found = read_head(content, KEY)
        assert found is not None
        assert (2, slot) == (found[0].number, found[1])
    torn = old + new[:100].ljust(SLOT_BYTES, b"\0")
    assert (mark_of(FIRST), 0) == read_head(torn, KEY)
    for content in (b"", b"x" * 2 * SLOT_BYTES, torn[:SLOT_BYTES].replace(b"1", b"2", 1)):
        assert read_head(content, KEY) is None
    assert read_head(old + new, b"k" * 32) is None


# -- what the platform records ------------------------------------------------------------------------------


def line_of(event: AuditEvent) -> str:
    return after(START, event, 0).line().decode("ascii")


ORIGIN = EventOrigin(tenant="tn_acme", runtime="rt_1", policy="0" * 64)


def test_of_code_a_digest_its_size_and_where_it_begins() -> None:
    """Of one long line only its beginning is recorded, and nothing of the lines after it."""
    code = code_of("\n  import os  # " + "x" * 999 + "\npassword = 'hunter2'")
    event = events.cell_ran(cell_audit_event(ORIGIN, "t1", code, 0.0, ExecutionResult(success=True)))
    assert "hunter2" not in line_of(event)
    assert 120 == len(str(event.facts["first_line"]))
    assert {"code_bytes": 3}.items() <= events.cell_ran(
        cell_audit_event(ORIGIN, "t1", code_of("\ud800"), 0.0, ExecutionResult(success=True))
    ).facts.items()


def test_of_a_result_no_value() -> None:
    """Neither printed output nor the error's text, where values can appear; the cost is recorded."""
    result = ExecutionResult(
        success=False,
        stdout="hunter2",
        value="hunter2",
        reply="hunter2",
        error=ErrorInfo(type="K" * 9999, message="hunter2", traceback="hunter2", reason="memory"),
        step=3,
        author="ann",
        usage=CellUsage(wall=1.5, cpu=0.25, peak_memory=7, bytes_written=8, output_bytes=9),
    )
    event = events.cell_ran(cell_audit_event(ORIGIN, "t1", code_of("1"), 2.5, result))
    assert "hunter2" not in line_of(event)
    assert len(line_of(event)) < 2000
    assert ("tn_acme", "t1", "rt_1") == (event.tenant, event.token, event.runtime)
    assert {
        "ended_at": 2_500_000,
        "author": "ann",
        "step": 3,
        "reason": "memory",
        "wall_us": 1_500_000,
        "output_bytes": 9,
    }.items() <= event.facts.items()


def test_of_a_policy_no_value_of_its_environment() -> None:
    """Users put secrets there despite all advice; names, limits, mounts and destinations are recorded."""
    policy = SandboxPolicy(
        env={"API_KEY": "hunter2"},
        mounts=[Mount(source="/data", writable=True)],
        network=Allow(["pypi.org"]),
        cell_timeout=1.5,
        cpus=0.5,
    )
    event = events.runtime_created(ACME, "etl", policy)
    assert "hunter2" not in line_of(event)
    facts = event.facts["policy"]
    assert isinstance(facts, dict)
    assert ["API_KEY"] == facts["env_names"]
    assert (["/data:rw"], ["pypi.org:443"]) == (facts["mounts"], facts["network"])
    assert (500, 1_500_000, None) == (
        facts["millicpus"],
        facts["cell_timeout_us"],
        facts["runtime_timeout_us"],
    )


def test_a_long_list_is_cut() -> None:
    """One entry cannot fill the log; the entry says that something was cut."""
    listed = events.token_changed(ACME, "issued", "t2", [f"scope-{number}" for number in range(60)]).facts[
        "scopes"
    ]
    assert isinstance(listed, list)
    assert (51, "... and 10 more") == (len(listed), listed[-1])


def test_each_kind_of_event_has_its_place() -> None:
    """Each kind of event records who, where and the outcome."""
    decision = Decision(
        at=2.5, kind="tunnel", host="h" * 999, port=443, address="", allowed=False, reason="not listed"
    )
    recorded = [
        events.access_decided(ACME, "execute", refusal="no scope"),
        events.access_decided(ACME, "execute"),
        events.token_changed(ACME, "issued", "t2", ["teams", "admin"]),
        events.runtime_removed(ACME, "asked for"),
        events.network_used(NetworkAuditEvent(origin=ORIGIN, decision=decision)),
        events.deeds_lost("n1/1", 7, None, "it has ended"),
    ]
    lines = [json.loads(line_of(event))["entry"] for event in recorded]
    assert {("tn_acme", "t1", "rt_1")} == {
        (line["tenant"], line["token"], line["runtime"]) for line in lines[:4]
    }
    assert ("tn_acme", "rt_1") == (lines[4]["tenant"], lines[4]["runtime"])
    assert [False, True] == [line["facts"]["allowed"] for line in lines[:2]]
    assert ["admin", "teams"] == lines[2]["facts"]["scopes"]
    assert (2_500_000, "not listed") == (lines[4]["facts"]["decided_at"], lines[4]["facts"]["reason"])
    assert len(lines[4]["facts"]["host"]) < 400
    assert ("n1/1", 7, None) == tuple(lines[5]["facts"][name] for name in ("source", "number", "lost"))
