"""Pages of a tenant's part of the audit log: what others did is not found, and a place is never a way to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote.gateway.audit import reader
from cenote.gateway.audit.entries import AuditEvent
from cenote.gateway.audit.folder import log_files
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import AuditChecks, AuditQuery, read_page
from cenote_security.errors import UsageError

KEY = b"k" * 32


def write(folder: Path, count: int, *, file_bytes: int = 2**20) -> None:
    """Entries of two tenants in turn; each third is about the network, each sixth a refusal there."""
    with AuditLog(folder, KEY, file_bytes=file_bytes) as log:
        for number in range(1, count + 1):
            kind = "access" if number % 3 else "network"
            facts = {"allowed": bool(number % 6), "text": "x" * (number % 50)}
            tenant = "tn_one" if number % 2 else "tn_two"
            log.append(AuditEvent(kind=kind, tenant=tenant, runtime=f"rt_{number % 4}", facts=facts))


def numbers(folder: Path, query: AuditQuery, limit: int) -> list[list[int]]:
    """All pages."""
    found, place = [], ""
    while True:
        page = read_page(folder, query, place, limit)
        found.append([entry.number for entry in page.entries])
        if not (place := page.following):
            return found


@pytest.mark.parametrize("file_bytes", [2**20, 3_000, 100])
@pytest.mark.parametrize("chunk", [2**16, 700, 64])
def test_pages_go_back_to_the_first_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_bytes: int, chunk: int
) -> None:
    """Each entry of the tenant once, the newest first, over files and whatever is read at a time."""
    monkeypatch.setattr(reader, "_CHUNK", chunk)
    write(tmp_path, 40, file_bytes=file_bytes)
    found = numbers(tmp_path, AuditQuery(tenant="tn_one"), 7)
    assert [*range(39, 0, -2)] == [number for page in found for number in page]
    assert max(map(len, found)) == 7


def test_what_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, 24)
    (found,) = numbers(tmp_path, AuditQuery(tenant="tn_two", kind="network"), 100)
    assert [24, 18, 12, 6] == found
    (found,) = numbers(tmp_path, AuditQuery(tenant="tn_two", refused=True), 100)
    assert [24, 18, 12, 6] == found
    (found,) = numbers(tmp_path, AuditQuery(tenant="tn_one", refused=True), 100)
    assert [] == found
    (found,) = numbers(tmp_path, AuditQuery(tenant="tn_one", runtime="rt_3"), 100)
    assert [*range(23, 0, -4)] == found


def test_one_read_looks_at_a_limited_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant whose entries are far back gets short pages, not a slow one."""
    monkeypatch.setattr(reader, "MOST_READ", 10)
    write(tmp_path, 35)
    found = numbers(tmp_path, AuditQuery(tenant="nobody"), 5)
    assert [[], [], [], []] == found


def test_a_half_written_entry_is_not_shown(tmp_path: Path) -> None:
    write(tmp_path, 4)
    (path,) = log_files(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"entry":{"number":5')
    assert [[3, 1]] == numbers(tmp_path, AuditQuery(tenant="tn_one"), 10)


@pytest.mark.parametrize(
    "place", ["x", "1", "1.", ".5", "-1.0", "1.2.3", "1." + "9" * 30, "../../etc.0", "².1"]
)
def test_what_is_no_place_is_refused(tmp_path: Path, place: str) -> None:
    write(tmp_path, 4)
    with pytest.raises(UsageError, match="no place in the audit log"):
        read_page(tmp_path, AuditQuery(tenant="tn_one"), place)


@pytest.mark.parametrize("place", ["1.17", "1.999999", "7.0", "0.0"])
def test_an_invented_place_shows_nothing_of_others(tmp_path: Path, place: str) -> None:
    write(tmp_path, 9)
    page = read_page(tmp_path, AuditQuery(tenant="tn_one"), place)
    assert {"tn_one"} >= {entry.event.tenant for entry in page.entries}


def test_a_verification_is_shared_for_a_while(tmp_path: Path) -> None:
    now = 100.0
    write(tmp_path, 5)
    checks = AuditChecks(tmp_path, KEY, lambda: now)
    first = checks.check()
    assert (5, None) == (first.found.last.number, first.found.broken)
    (path,) = log_files(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"network", b"netwerk", 1))
    assert first is checks.check()
    now += reader.VERIFIED_FOR + 1
    broken = checks.check().found.broken
    assert broken is not None
    assert 3 == broken.number
