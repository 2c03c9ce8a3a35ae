"""Writing the audit log: order, rotation, one writer, full disks, failing disks."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from cenote.gateway.audit.entries import START, AuditEvent
from cenote.gateway.audit.folder import log_files
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import LogVerification, entries, verify
from cenote.gateway.errors import AuditUnavailableError
from cenote_security.errors import UsageError

KEY = b"k" * 32
"""Signs the heads in these tests."""


def event(number: int, size: int = 0) -> AuditEvent:
    return AuditEvent(kind="test", facts={"number": number, "filler": "x" * size})


def numbers(folder: Path) -> list[object]:
    return [entry.event.facts.get("number") for entry in entries(folder)]


def test_what_is_appended_is_there(tmp_path: Path) -> None:
    """Entries are in order, chained, and valid before and after the writer is closed."""
    with AuditLog(tmp_path, KEY, clock=lambda: 1.5) as log:
        assert START == log.mark
        assert 1 == log.append(event(1)).number
        assert 3 == log.append(event(2), event(3)).number
        assert LogVerification(last=log.mark) == verify(tmp_path, KEY)
        mark = log.mark
    assert LogVerification(last=mark) == verify(tmp_path, KEY)
    assert [1, 2, 3] == numbers(tmp_path)
    assert {1_500_000} == {entry.at for entry in entries(tmp_path)}


def test_a_log_is_continued(tmp_path: Path) -> None:
    """The next writer continues where the last one stopped; a clean end needs no note."""
    for number in range(4):
        with AuditLog(tmp_path, KEY) as log:
            log.append(event(number))
    assert [0, 1, 2, 3] == numbers(tmp_path)
    assert 4 == verify(tmp_path, KEY).last.number


def test_a_full_file_is_followed_by_another(tmp_path: Path) -> None:
    """The chain continues over files, which are named by their first entries; also over writers."""
    for start in (0, 10):
        with AuditLog(tmp_path, KEY, file_bytes=1500) as log:
            for number in range(start, start + 10):
                log.append(event(number, size=300))
    names = [int(path.stem) for path in log_files(tmp_path)]
    assert len(names) > 5
    assert 1 == names[0]
    assert list(range(20)) == numbers(tmp_path)
    assert (20, None) == (verify(tmp_path, KEY).last.number, verify(tmp_path, KEY).broken)


def test_a_file_whose_making_has_failed_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example where a process has one descriptor left: the failed file does not block the next try."""
    with AuditLog(tmp_path, KEY, file_bytes=100) as log:
        log.append(event(0))
        opened = len(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patch:
            patch.setattr("cenote.gateway.audit.log.sync_folder", _no_descriptors)
            with pytest.raises(AuditUnavailableError, match="too many open files"):
                log.append(event(1))
        assert opened == len(os.listdir("/proc/self/fd"))
        log.append(event(1))
    assert [0, 1] == numbers(tmp_path)
    assert 2 == len(log_files(tmp_path))


def _no_descriptors(_folder: Path) -> None:
    raise OSError(errno.EMFILE, "too many open files")


def test_there_is_one_writer(tmp_path: Path) -> None:
    """A second writer is refused while the first exists, in this process and in another."""
    with AuditLog(tmp_path, KEY), pytest.raises(AuditUnavailableError, match="another writer has it"):
        AuditLog(tmp_path, KEY)
    AuditLog(tmp_path, KEY).close()


def test_threads_write_whole_entries(tmp_path: Path) -> None:
    """All entries are written, each once, in one chain."""
    with AuditLog(tmp_path, KEY, file_bytes=5000) as log, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: log.append(event(number), event(-number)), range(1, 60)))
    assert sorted([*range(1, 60), *range(-59, 0)]) == sorted(numbers(tmp_path))  # type: ignore[type-var]
    assert verify(tmp_path, KEY).broken is None


def test_a_reader_does_not_disturb_a_writer(tmp_path: Path) -> None:
    """A verifier that runs while entries are written never takes a half-written one for a broken one."""
    with AuditLog(tmp_path, KEY, file_bytes=3000) as log, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(
            lambda: [log.append(event(number, 500), event(number)) for number in range(150)]
        )
        seen = [verify(tmp_path, KEY)]
        while not writing.done():
            seen.append(verify(tmp_path, KEY))
    assert {None} == {verification.broken for verification in seen}
    assert sorted(seen, key=lambda verification: verification.last.number) == seen


def test_the_files_are_private(tmp_path: Path) -> None:
    """Other users cannot read who ran what."""
    old = os.umask(0)
    try:
        with AuditLog(tmp_path / "audit", KEY) as log:
            log.append(event(1))
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "audit").iterdir()}
    assert {"head": 0o600, "lock": 0o600, "0000000000000001.jsonl": 0o600} == modes
    assert 0o700 == stat.S_IMODE((tmp_path / "audit").stat().st_mode)


def test_a_closed_log_records_nothing(tmp_path: Path) -> None:
    """Closing twice is allowed; an action that cannot be recorded must not be done."""
    log = AuditLog(tmp_path, KEY)
    log.close()
    log.close()
    with pytest.raises(AuditUnavailableError, match="it was closed"):
        log.append(event(1))


def test_an_event_that_is_too_large_changes_nothing(tmp_path: Path) -> None:
    """The earlier events of the same call are not written either."""
    with AuditLog(tmp_path, KEY) as log:
        with pytest.raises(UsageError, match="an entry of the audit log has up to"):
            log.append(event(1), event(2, size=300_000))
        log.append(event(3))
    assert [3] == numbers(tmp_path)


def test_a_weak_key_is_refused(tmp_path: Path) -> None:
    """It is refused before anything is created."""
    with pytest.raises(UsageError, match="32 bytes"):
        AuditLog(tmp_path / "audit", b"short")
    assert [] == list(tmp_path.iterdir())


# -- disks ------------------------------------------------------------------------------------------------


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limits file size in this process, like a disk on which files cannot grow: writes fail half-way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)


def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    """The part of an entry that was written is removed; once there is space again the same writer continues."""
    with AuditLog(tmp_path, KEY) as log:
        log.append(event(1, size=9000))
        (path,) = log_files(tmp_path)
        size = path.stat().st_size
        with largest_file(size + 100):
            for _ in range(3):
                with pytest.raises(AuditUnavailableError, match=os.strerror(errno.EFBIG)):
                    log.append(event(2, size=500), event(3, size=500))
        assert size == path.stat().st_size
        assert (1, None) == (verify(tmp_path, KEY).last.number, verify(tmp_path, KEY).broken)
        log.append(event(4))
    assert [1, 4] == numbers(tmp_path)
    assert 2 == verify(tmp_path, KEY).last.number


FULL_DISK = """
import sys
from pathlib import Path
from cenote.gateway.audit.entries import Mark, before
from cenote.gateway.audit.entries import AuditEvent
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import entries, verify
from cenote.gateway.errors import AuditUnavailableError

folder, key = Path(sys.argv[1]) / "audit", b"k" * 32
log = AuditLog(folder, key, file_bytes=20_000)
recorded = 0
try:
    while True:
        log.append(AuditEvent(kind="test", facts={"filler": "x" * 3000}))
        recorded += 1
except AuditUnavailableError as error:
    assert "No space left" in str(error), error
seen = verify(folder, key)
assert (recorded, None) == (seen.last.number, seen.broken), seen
mark = Mark(number=recorded, hash=seen.last.hash)
sorted(folder.glob("*.jsonl"))[0].unlink()
log.append(AuditEvent(kind="test", facts={"filler": "x" * 3000}))
log.close()
AuditLog(folder, key).close()
first = next(entries(folder))
assert verify(folder, key, start=before(first), witnesses=[mark]).broken is None
print(recorded)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """On a file system of 256 KiB: acknowledged entries are present, and freed space is used."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"mount -t tmpfs -o size=256k none {disk} && exec {sys.executable} - {disk}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        input=FULL_DISK,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no right to mount here")
    assert 0 == done.returncode, done.stderr
    assert int(done.stdout) > 40


def test_after_a_failed_sync_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer ends; the next one accepts what is present, and records that it was never acknowledged."""
    log = AuditLog(tmp_path, KEY)
    log.append(event(1))

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(AuditUnavailableError, match="a sync failed"):
            log.append(event(2))
    with pytest.raises(AuditUnavailableError, match="a sync failed"):
        log.append(event(3))
    log.close()
    assert (2, 1) == (verify(tmp_path, KEY).last.number, verify(tmp_path, KEY).unsigned)
    AuditLog(tmp_path, KEY).close()
    assert [1, 2, None] == numbers(tmp_path)
    *_, note = entries(tmp_path)
    assert ("log.recovered", 1, 0) == (
        note.event.kind,
        note.event.facts["adopted_entries"],
        note.event.facts["dropped_bytes"],
    )
    assert (3, 0) == (verify(tmp_path, KEY).last.number, verify(tmp_path, KEY).unsigned)
