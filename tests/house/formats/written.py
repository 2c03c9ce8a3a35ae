"""One of each stored format, as this version of Cenote writes it: `python -m tests.house.formats.written DATE`.

Older versions must be able to write an archive's content as well, so this uses few features.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cenote.gateway.audit.entries import AuditEvent
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.store.database import Database
from cenote.gateway.store.tenants import Tenants, Tokens
from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy
from cenote_worker.history.event_log import open_log
from cenote_worker.history.step import StepRecord

ARCHIVES: Final = Path(__file__).parent

SANDBOX: Final = SandboxPolicy(preload=(), snapshots="none")

KEY: Final = b"k" * 32
"""Key of the audit log."""

CELLS: Final = (
    "x = base + 15",
    "open('f.txt', 'w').write('hello')\ntext = open('f.txt').read()",
    "rows = [x]\nalias = rows\nrows.append(fetch(2))",
    "1 / 0",
    "total = sum(rows) + len(text)\ntotal",
)


def fetch(number: int) -> int:
    """Ten times the value, from outside."""
    return number * 10


def given() -> dict[str, list[object]]:
    """The objects that a client must supply to each restored runtime."""
    return {"variables": [Variable("base", 5)], "functions": [Function(fetch, host=True)]}


def write(folder: Path) -> None:
    """history.sqlite · store · record · gateway.db, token · audit"""
    history = str(folder / "history.sqlite")
    with PythonRuntime(sandbox=SANDBOX, history=history, store=str(folder / "store"), name="r") as runtime:
        runtime.inject(*given()["variables"], *given()["functions"])  # type: ignore[arg-type]
        for code in CELLS:
            runtime.execute(code, cause="model call 17")
        runtime.checkpoint("kept")
        runtime.execute("later = 1")
        runtime.checkpoint()
    record = open_log(folder / "record")
    record.begins_with(["raw"])
    record.ended(StepRecord(number=1, code="x = 1", author="ann", cause="call-1"))
    record.ended(StepRecord(number=2, code="x / 0", status="failed", stdout="é"))
    record.moved(1, "rollback")
    record.close()
    with Database(folder / "gateway.db") as database:
        tenant = Tenants(database).create("acme")
        (folder / "token").write_text(Tokens(database).issue(tenant.id, note="golden").text)
    with AuditLog(folder / "audit", KEY) as log:
        log.append(AuditEvent(kind="test", facts={"number": 1}), AuditEvent(kind="test", facts={"text": "é"}))


def main() -> None:
    with TemporaryDirectory() as made:
        write(Path(made))
        with tarfile.open(ARCHIVES / f"{sys.argv[1]}.tar.xz", "w:xz") as archive:
            archive.add(made, ".", filter=unowned)


def unowned(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without an owner and a time, so that an archive contains nothing about the machine that wrote it."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
