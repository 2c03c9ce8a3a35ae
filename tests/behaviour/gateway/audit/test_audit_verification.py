"""Changes to a written log are detected and located; what a crash leaves is told apart from them."""

from __future__ import annotations

import hashlib
import hmac
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cenote.gateway.audit.entries import (
    START,
    AuditEntry,
    AuditEvent,
    after,
    before,
    head_slot,
    mark_of,
    signed_base,
)
from cenote.gateway.audit.folder import log_files
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import entries, verify
from cenote.gateway.errors import AuditBrokenError, AuditUnavailableError

KEY = b"k" * 32
COUNT = 12


def event(number: int) -> AuditEvent:
    return AuditEvent(kind="test", facts={"number": number, "filler": "x" * 200})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A log of twelve entries in four files."""
    folder = tmp_path / "audit"
    with AuditLog(folder, KEY, file_bytes=1200) as log:
        for number in range(1, COUNT + 1):
            log.append(event(number))
    assert 4 == len(log_files(folder))
    return folder


def test_old_entries_are_removed_in_whole_files_and_the_rest_verifies(tmp_path: Path) -> None:
    """The removal is recorded; entries older than the limit go, entries at the limit stay."""
    folder, now = tmp_path / "audit", [1_000.0]
    with AuditLog(folder, KEY, file_bytes=1200, keep=100.0, clock=lambda: now[0]) as log:
        for number in range(1, COUNT + 1):
            now[0] += 10
            log.append(event(number))
        before_trim = len(log_files(folder))
        assert 0 == log.trim() or before_trim > 1
        now[0] = 2_000.0
        removed = log.trim()
        kept = list(entries(folder))
        assert removed == kept[0].number - 1 > 0
        assert "log.trimmed" == kept[-1].event.kind
        assert (removed, kept[0].number - 1) == (
            kept[-1].event.facts["entries"],
            kept[-1].event.facts["up_to"],
        )
        assert verify(folder, KEY).broken is None
        log.append(event(COUNT + 1))
    with AuditLog(folder, KEY, keep=100.0) as again:
        assert verify(folder, KEY).broken is None
        assert again.mark.number == verify(folder, KEY).last.number


def test_entries_that_are_young_enough_stay(tmp_path: Path) -> None:
    """All entries stay where no retention is set."""
    for folder, keep in ((tmp_path / "young", 1e6), (tmp_path / "kept", 0.0)):
        with AuditLog(folder, KEY, file_bytes=1200, keep=keep) as log:
            for number in range(1, COUNT + 1):
                log.append(event(number))
            assert 0 == log.trim()
            assert COUNT == len(list(entries(folder)))


def test_files_that_the_platform_has_not_removed_are_missed(tmp_path: Path) -> None:
    """Retention signs what it removes: neither a head nor another platform's signature replaces that."""
    folder, now = tmp_path / "audit", [1_000.0]
    with AuditLog(folder, KEY, file_bytes=1200, keep=10.0, clock=lambda: now[0]) as log:
        for number in range(1, COUNT + 1):
            log.append(event(number))
        now[0] = 2_000.0
        assert log.trim()
    base = folder / "base"
    good = base.read_bytes()
    assert verify(folder, KEY).broken is None
    for wrong in (None, (folder / "head").read_bytes(), signed_base(START, b"x" * 32)):
        base.unlink(missing_ok=True)
        if wrong is not None:
            base.write_bytes(wrong)
        assert verify(folder, KEY).broken is not None
    base.write_bytes(good)
    log_files(folder)[0].unlink()
    assert verify(folder, KEY).broken is not None


def test_a_crash_while_old_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that should have been removed and still exist do no harm, and are removed the next time."""
    folder, now = tmp_path / "audit", [1_000.0]
    with AuditLog(folder, KEY, file_bytes=1200, keep=10.0, clock=lambda: now[0]) as log:
        for number in range(1, COUNT + 1):
            log.append(event(number))
        now[0] = 2_000.0
        with monkeypatch.context() as crash:
            crash.setattr(Path, "unlink", _fails)
            with pytest.raises(AuditUnavailableError):
                log.trim()
        assert verify(folder, KEY).broken is None
        assert log.trim()
        assert verify(folder, KEY).broken is None


def _fails(_path: Path, **_: object) -> None:
    raise OSError("no")


def rewrite(folder: Path, number: int, change: Callable[[bytes], bytes]) -> None:
    """Changes one entry in place."""
    for path in log_files(folder):
        lines = path.read_bytes().splitlines(keepends=True)
        first = int(path.stem)
        if first <= number < first + len(lines):
            lines[number - first] = change(lines[number - first])
            path.write_bytes(b"".join(lines))


def rehash(folder: Path, number: int) -> None:
    """A forger who knows the format changes an entry and recomputes the hashes of all later ones."""
    old = list(entries(folder))
    shutil.rmtree(folder / "x", ignore_errors=True)
    for path in log_files(folder):
        path.unlink()
    mark, lines = START, []
    for entry in old:
        changed = entry.event if entry.number != number else AuditEvent(kind="forged", facts={})
        new = after(mark, changed, entry.at)
        lines.append(new.line())
        mark = mark_of(new)
    (folder / f"{1:016d}.jsonl").write_bytes(b"".join(lines))


@pytest.mark.parametrize("number", [1, 2, 6, COUNT])
def test_the_first_changed_entry_is_found(written: Path, number: int) -> None:
    """At the beginning, in the middle, at the very end: the error names its number, its file and its line."""
    rewrite(written, number, lambda line: line.replace(b'"test"', b'"best"'))
    broken = verify(written, KEY).broken
    assert broken is not None
    assert (number, "its content does not match its hash") == (broken.number, broken.reason)
    assert number == int(Path(broken.file).stem) + broken.line - 1


@pytest.mark.parametrize("number", [1, 6, COUNT])
def test_a_removed_entry_is_missed(written: Path, number: int) -> None:
    """The next entry does not follow; after the last one, the head is ahead."""
    rewrite(written, number, lambda line: b"")
    broken = verify(written, KEY).broken
    assert broken is not None
    assert number == broken.number


def test_a_forger_who_makes_all_hashes_fit_is_found_at_the_head(written: Path) -> None:
    """The chain is consistent; the signed entry is a different one."""
    rehash(written, 3)
    broken = verify(written, KEY).broken
    assert broken is not None
    assert (COUNT, "it is not the entry that was signed or witnessed") == (broken.number, broken.reason)


@pytest.mark.parametrize("kept", [0, 1, 5, COUNT - 1])
def test_what_is_cut_off_at_the_end_is_missed(written: Path, kept: int) -> None:
    """Whole entries or whole files: the head records how far the log went."""
    for path in reversed(log_files(written)):
        lines = path.read_bytes().splitlines(keepends=True)[: max(kept - int(path.stem) + 1, 0)]
        path.write_bytes(b"".join(lines)) if lines else path.unlink()
    broken = verify(written, KEY).broken
    assert broken is not None
    assert kept + 1 == broken.number
    assert f"ends before entry {COUNT}" in broken.reason
    with pytest.raises(AuditBrokenError, match="keep the folder as evidence"):
        AuditLog(written, KEY)


def test_half_an_acknowledged_entry_is_not_taken_for_a_crash(written: Path) -> None:
    """A last line that an attacker cut in two must not be repaired away."""
    last = log_files(written)[-1]
    last.write_bytes(last.read_bytes()[:-100])
    broken = verify(written, KEY).broken
    assert broken is not None
    assert COUNT == broken.number
    with pytest.raises(AuditBrokenError):
        AuditLog(written, KEY)


def test_a_missing_file_is_missed(written: Path) -> None:
    """In the middle, and at the beginning unless it was archived and its last entry is known."""
    files = log_files(written)
    files[0].unlink()
    broken = verify(written, KEY).broken
    assert broken is not None
    assert (1, files[1].name, 1) == (broken.number, broken.file, broken.line)
    archived = before(next(iter(entries(written))))
    assert verify(written, KEY, start=archived).broken is None
    files[2].unlink()
    broken = verify(written, KEY, start=archived).broken
    assert broken is not None
    assert (int(files[2].stem), files[3].name) == (broken.number, broken.file)


@pytest.mark.parametrize(
    "damage",
    [
        lambda head: head.unlink(),
        lambda head: head.write_bytes(b""),
        lambda head: head.write_bytes(head_slot(START, b"f" * 32) * 2),
    ],
    ids=["removed", "emptied", "forged"],
)
def test_without_its_head_a_log_is_not_trusted(written: Path, damage: Callable[[Path], None]) -> None:
    """Neither a reader nor a writer accepts it."""
    damage(written / "head")
    broken = verify(written, KEY).broken
    assert broken is not None
    assert ("head", 0) == (broken.file, broken.line)
    with pytest.raises(AuditBrokenError, match="its head is missing"):
        AuditLog(written, KEY)


def test_another_key_signs_nothing_here(written: Path) -> None:
    """Without the key an operator cannot verify, and the error says so."""
    broken = verify(written, b"o" * 32).broken
    assert broken is not None
    assert "not signed with this key" in broken.reason


def test_only_a_witness_sees_an_old_log_with_its_old_head(tmp_path: Path) -> None:
    """An attacker who restores both leaves a log that was once valid; a mark stored elsewhere reveals it."""
    folder, old = tmp_path / "audit", tmp_path / "old"
    with AuditLog(folder, KEY) as log:
        log.append(event(1))
    shutil.copytree(folder, old)
    with AuditLog(folder, KEY) as log:
        witness = log.append(event(2))
    assert verify(folder, KEY, witnesses=[witness]).broken is None
    assert verify(old, KEY).broken is None
    broken = verify(old, KEY, witnesses=[witness]).broken
    assert broken is not None
    assert (2, "the log ends before entry 2, which was signed or witnessed") == (broken.number, broken.reason)


def test_what_follows_the_head_is_told(written: Path) -> None:
    """Entries and bytes that are not signed: a writer was killed, or another program wrote them."""
    path = log_files(written)[-1]
    *_, last = entries(written)
    extra = after(mark_of(last), event(99), 0)
    path.write_bytes(path.read_bytes() + extra.line() + b'{"entry":')
    seen = verify(written, KEY)
    assert (COUNT + 1, None, 1, 9) == (seen.last.number, seen.broken, seen.unsigned, seen.unfinished)


def test_a_writer_keeps_whole_entries_and_cuts_the_rest(written: Path) -> None:
    """It records both, with a digest of what it cut."""
    path = log_files(written)[-1]
    *_, last = entries(written)
    path.write_bytes(path.read_bytes() + after(mark_of(last), event(99), 0).line() + b"\0\n torn")
    with AuditLog(written, KEY) as log:
        log.append(event(100))
    seen = verify(written, KEY)
    assert (COUNT + 3, None, 0, 0) == (seen.last.number, seen.broken, seen.unsigned, seen.unfinished)
    kept, note, new = list(entries(written))[-3:]
    assert (99, 100) == (kept.event.facts["number"], new.event.facts["number"])
    assert (1, 7) == (note.event.facts["adopted_entries"], note.event.facts["dropped_bytes"])


@pytest.mark.parametrize("tail", [b"", b"torn", b"\0" * 5000, b"x" * 600_000])
def test_a_file_that_was_just_begun(tmp_path: Path, tail: bytes) -> None:
    """A crash between creating a file and writing its first entry, whatever the disk holds of it."""
    with AuditLog(tmp_path, KEY) as log:
        log.append(event(1))
    (tmp_path / f"{2:016d}.jsonl").write_bytes(tail)
    with AuditLog(tmp_path, KEY) as log:
        log.append(event(2))
    seen = verify(tmp_path, KEY)
    assert (None, 0, 0) == (seen.broken, seen.unsigned, seen.unfinished)
    assert [1, *([None] if tail else []), 2] == [
        entry.event.facts.get("number") for entry in entries(tmp_path)
    ]


@pytest.mark.parametrize(
    ("number", "reason"),
    [(50, "does not continue what was signed"), (COUNT + 1, "is not the one that was signed")],
)
def test_a_file_that_continues_nothing_is_refused(written: Path, number: int, reason: str) -> None:
    """A writer does not continue from a point that was never signed, or from a replaced entry."""
    forged = AuditEntry(number=number, at=0, event=event(number), previous="0" * 64)
    (written / f"{number:016d}.jsonl").write_bytes(forged.line())
    with pytest.raises(AuditBrokenError, match=reason):
        AuditLog(written, KEY)
    assert verify(written, KEY).broken is None
    assert verify(written, KEY).unfinished


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0), byte=st.integers(0, 255))
def test_no_byte_can_be_changed(written: Path, place: int, byte: int) -> None:
    """Changing any byte of any file of entries is detected."""
    files = log_files(written)
    path = files[place % len(files)]
    content = path.read_bytes()
    changed = bytearray(content)
    place %= len(content)
    if changed[place] == byte:
        return
    changed[place] = byte
    path.write_bytes(changed)
    try:
        assert verify(written, KEY).broken is not None
    finally:
        path.write_bytes(content)


def test_the_chain_can_be_checked_without_our_code(written: Path) -> None:
    """An auditor need not trust the platform: the lines, SHA-256, and for the head a key are enough."""
    previous, number = "0" * 64, 0
    for path in sorted(written.glob("*.jsonl")):
        for line in path.read_text("ascii").splitlines():
            text = line[len('{"entry":') : -len(',"hash":""}') - 64]
            assert f'"previous":"{previous}"' in text
            previous = hashlib.sha256(b"cenote audit entry\0" + text.encode()).hexdigest()
            assert line == f'{{"entry":{text},"hash":"{previous}"}}'
            number += 1
    signed = f"{number:020d} {previous}"
    mac = hmac.new(KEY, b"cenote audit head\0" + signed.encode(), "sha256").hexdigest()
    assert f"{signed} {mac}\n" in (written / "head").read_text("ascii")


# -- killed writers ---------------------------------------------------------------------------------------

KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from cenote.gateway.audit.entries import AuditEvent
from cenote.gateway.audit.log import AuditLog

folder, call, after = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
real, calls, told = getattr(os, call), 0, 0


def killing(fd, *rest):
    # The beginning of the write, if it is one, and then no more: as if somebody pulled the plug.
    global calls
    calls += 1
    if calls == after:
        if call == "pwrite":
            real(fd, rest[0][:60], rest[1])
        os.kill(os.getpid(), signal.SIGKILL)
    return real(fd, *rest)


log = AuditLog(folder, b"k" * 32, file_bytes=2000)
setattr(os, call, killing)
while True:
    mark = log.append(*(AuditEvent(kind="test", facts={"filler": "x" * 300}) for _ in range(3)))
    print(mark.number, mark.hash, flush=True)
"""


@pytest.mark.sweep
@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "open"])
@pytest.mark.parametrize("nth", [1, 2, 7])
def test_a_killed_writer_loses_nothing_that_it_told(tmp_path: Path, call: str, nth: int) -> None:
    """Killed in the middle of each kind of step: the log is valid, continues, and has every acknowledged entry."""
    folder = tmp_path / "audit"
    command = [sys.executable, "-c", KILLED_WRITER, str(folder), call, str(nth)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert -9 == done.returncode, done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    seen = verify(folder, KEY)
    assert seen.broken is None
    assert seen.last.number - 3 <= 3 * len(told) <= seen.last.number
    with AuditLog(folder, KEY) as log:
        mark = log.append(event(1))
    seen = verify(folder, KEY)
    assert (mark, None, 0, 0) == (seen.last, seen.broken, seen.unsigned, seen.unfinished)
    hashes = {entry.number: entry.hash for entry in entries(folder)}
    assert {int(number): digest for number, digest in told}.items() <= hashes.items()
