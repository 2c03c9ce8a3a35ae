"""Backups: made while cells run, restored into an empty platform, refused where they are not what they should be."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.gateway.world import World
from tests.waiting import until

from cenote import PythonRuntime, SandboxPolicy, connect
from cenote.gateway.audit.entries import AuditEvent
from cenote.gateway.audit.log import AuditLog
from cenote.gateway.audit.reader import copy_log, verify
from cenote.gateway.backup.archive import FORMAT, BackupHeader, BackupReader, BackupWriter, BadBackupError
from cenote.gateway.backup.backup import back_up
from cenote.gateway.backup.restore import restore
from cenote.gateway.store.database import Database
from cenote.gateway.store.schema import MIGRATIONS, TABLES
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.store.tenants import Tenants, Tokens
from cenote_security.auth.secret_files import read_secret_file
from cenote_security.auth.tokens import ORDINARY_SCOPES
from cenote_security.errors import UnavailableError, UsageError

BARE = SandboxPolicy(preload=(), memory="256MiB", snapshots="none")
KEY = b"k" * 32


@pytest.fixture
def target(tmp_path: Path) -> StateFolder:
    """Where the second world of a test has its state."""
    return StateFolder(path=tmp_path / "world-1" / "state")


@pytest.fixture
def taken(world: World, tmp_path: Path) -> Path:
    """A backup of a platform with one durable runtime, `r`, in which x is 1; the platform has ended."""
    user = world.user("acme")
    with connect(world.address, user.token).runtime("r", sandbox=BARE, durable=True) as runtime:
        assert runtime.execute("x = 1").success
    back_up(world.state, tmp_path / "taken")
    world.close()
    return tmp_path / "taken"


@contextmanager
def counting(runtime: PythonRuntime) -> Iterator[list[int]]:
    """Runs cells that set x to 1, 2, 3, ... meanwhile; gives those that were answered."""
    answered: list[int] = []
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            number = len(answered) + 1
            assert runtime.execute(f"x = {number}").success
            answered.append(number)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield answered
    finally:
        ended.set()
        thread.join()


def test_what_was_answered_before_a_backup_is_in_it(
    make_world: Callable[..., World], tmp_path: Path, target: StateFolder
) -> None:
    """Cells run all the while. The restored platform has the state, the record, and the log, and continues."""
    world = make_world()
    user = world.user("acme")
    first = connect(world.address, user.token).runtime("r", sandbox=BARE, durable=True)
    with first, counting(first) as answered:
        until(lambda: len(answered) >= 3)
        before = len(answered)
        report = back_up(world.state, tmp_path / "backup")
        until(lambda: len(answered) > before + 1)
    assert (1, 1, 1, ()) == (report.tenants, report.runtimes, report.stored, report.without_state)
    restored = restore(target, tmp_path / "backup")
    assert (1, 1, 1, ()) == (restored.tenants, restored.runtimes, restored.stored, restored.problems)
    found = verify(target.audit, read_secret_file(target.audit_key))
    assert (None, 0, 0, report.entries) == (found.broken, found.unsigned, found.unfinished, found.last.number)

    other = make_world()
    platform = connect(other.address, user.token)  # of the same token
    with platform.runtime("r", durable=True, sandbox=BARE) as second:
        x = second.retrieve("x")
        assert before <= x <= len(answered)
        assert [f"x = {number}" for number in range(1, x + 1)] == [
            step.code for step in second.state.steps if step.code
        ][:x]
        assert second.execute("x += 1").success
        assert second.retrieve("x") == x + 1
    until(lambda: "platform.restored" in (target.audit / "0000000000000001.jsonl").read_text())
    assert verify(target.audit, read_secret_file(target.audit_key)).broken is None


def test_a_restored_runtime_has_a_writer_of_its_own(taken: Path, target: StateFolder) -> None:
    """Checkpoints say which writer made them: a later one must not be taken for a former one."""
    restore(target, taken)
    folder = next(target.store.glob("*/*"))
    assert int((folder / "writer").read_text()) >= 2


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.995])
def test_a_changed_byte_is_found(taken: Path, target: StateFolder, share: float) -> None:
    content = bytearray(taken.read_bytes())
    with tarfile.open(taken) as tar:
        members = [member for member in tar if member.size]
    member = members[int(share * len(members))]
    content[member.offset_data + member.size // 2] ^= 0x20
    taken.write_bytes(content)
    with pytest.raises(BadBackupError, match=r"take another backup|use the version"):
        restore(target, taken)
    assert not target.path.exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.9999])
def test_an_incomplete_file_is_refused(taken: Path, target: StateFolder, share: float) -> None:
    with tarfile.open(taken) as tar:
        last = tar.getmembers()[-1]
    os.truncate(taken, int(share * (last.offset_data + last.size)))
    with pytest.raises(BadBackupError, match=r"no whole archive|incomplete"):
        restore(target, taken)
    assert not target.path.exists()


def test_a_file_that_ends_between_members_is_refused(taken: Path, target: StateFolder) -> None:
    with tarfile.open(taken) as tar:
        last = tar.getmembers()[-1]
    os.truncate(taken, last.offset)
    with pytest.raises(BadBackupError, match="incomplete"):
        restore(target, taken)


def rewritten(path: Path, name: str, changed: Callable[[dict[str, object]], object]) -> None:
    """The archive with another header or other sums, and sums that fit."""
    with tarfile.open(path) as tar:
        contents = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    facts = json.loads(contents[name])
    changed(facts)
    contents[name] = json.dumps(facts).encode()
    with tarfile.open(path, "w") as tar:
        for each, content in contents.items():
            member = tarfile.TarInfo(each)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_a_later_format_names_the_version_that_made_it(taken: Path, target: StateFolder) -> None:
    rewritten(taken, "backup.json", lambda facts: facts.update(format=FORMAT + 1, cenote="7.0.0"))
    with pytest.raises(BadBackupError, match=rf"has format {FORMAT + 1}.*7\.0\.0"):
        restore(target, taken)


def test_a_later_schema_names_the_version_that_made_it(taken: Path, target: StateFolder) -> None:
    rewritten(taken, "backup.json", lambda facts: facts.update(schema=len(MIGRATIONS) + 1, cenote="7.0.0"))
    with pytest.raises(BadBackupError, match=rf"schema {len(MIGRATIONS) + 1}.*7\.0\.0"):
        restore(target, taken)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "state/../../evil", "state/.ssh/x", "store/a/../history", "records/x.sql"],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, target: StateFolder, name: str) -> None:
    path = tmp_path / "hostile"
    header = json.dumps(
        {"format": FORMAT, "cenote": "1", "made": 1.0, "schema": 1, "with_store": True}
    ).encode()
    with tarfile.open(path, "w") as tar:
        for each, content in (("backup.json", header), (name, b"x")):
            member = tarfile.TarInfo(each)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    with pytest.raises(BadBackupError, match="has no place in a backup"):
        restore(target, path)
    assert [] == [one for one in tmp_path.rglob("*evil*")]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(taken: Path, target: StateFolder, kind: bytes) -> None:
    with tarfile.open(taken, "a") as tar:
        member = tarfile.TarInfo("state/tls/link")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(BadBackupError):
        restore(target, taken)


def test_a_target_with_anything_in_it_is_left_alone(taken: Path, target: StateFolder) -> None:
    target.path.mkdir(parents=True)
    (target.path / "platform.log").write_text("there was one\n")
    with pytest.raises(UsageError, match=r"not empty.*XDG_STATE_HOME"):
        restore(target, taken)
    assert ["platform.log"] == [one.name for one in target.path.iterdir()]


def test_a_store_with_states_of_these_tenants_is_left_alone(
    taken: Path, target: StateFolder, tmp_path: Path
) -> None:
    restore(target, taken, store=str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match=r"elsewhere' is not empty"):
        restore(StateFolder(path=tmp_path / "third"), taken, store=str(tmp_path / "elsewhere"))
    assert not (tmp_path / "third").exists()


def test_states_go_to_an_object_store_and_come_from_one(
    taken: Path, target: StateFolder, tmp_path: Path
) -> None:
    """fsspec's `local` is one without the locks and links of a folder."""
    url = f"local://{tmp_path}/objects"
    restore(target, taken, store=url)
    back_up(target, tmp_path / "second")
    with tarfile.open(taken) as one, tarfile.open(tmp_path / "second") as two:
        stored = [
            {each.name: tar.extractfile(each).read() for each in tar if each.name.startswith("store/")}  # type: ignore[union-attr]
            for tar in (one, two)
        ]
    assert stored[0] == stored[1]
    assert any(name.endswith(".checkpoint") for name in stored[0])


def test_states_that_are_copied_elsewhere_are_left_out(
    world: World, tmp_path: Path, target: StateFolder
) -> None:
    user = world.user("acme")
    with connect(world.address, user.token).runtime("r", sandbox=BARE, durable=True) as runtime:
        runtime.execute("x = 1")
    report = back_up(world.state, tmp_path / "small", with_store=False)
    assert (0, ()) == (report.stored, report.without_state)
    assert not restore(target, tmp_path / "small").with_store


def test_checking_leaves_nothing(taken: Path, target: StateFolder, tmp_path: Path) -> None:
    assert restore(target, taken, check_only=True).stored == 1
    assert [] == list(target.path.parent.iterdir())


def test_a_file_that_exists_is_not_replaced(world: World, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        back_up(world.state, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"


def test_there_is_nothing_to_back_up_where_no_platform_was(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no platform's state"):
        back_up(StateFolder(path=tmp_path / "none"), tmp_path / "backup")
    assert [] == list(tmp_path.iterdir())


def test_a_failed_backup_leaves_no_file(world: World, tmp_path: Path) -> None:
    (world.state.audit / "head").write_bytes(b"not signed")
    folder = tmp_path / "backups"
    folder.mkdir()
    with pytest.raises(Exception, match="its head is missing"):
        back_up(world.state, folder / "backup")
    assert [] == list(folder.iterdir())


KILLED = """
import os, signal, sys
from pathlib import Path
from cenote.gateway.backup import restore as module
from cenote.gateway.store.state_folder import StateFolder
place = getattr(module, sys.argv[3])
def killed(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(module, sys.argv[3], killed)
module.restore(StateFolder(path=Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["_write", "verify", "Database", "Notices", "_rename"])
def test_a_killed_restore_leaves_no_platform_and_can_be_repeated(
    taken: Path, target: StateFolder, moment: str
) -> None:
    """Killed before it writes, before it checks the log, before and after the records, before all is in place."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(target.path), str(taken), moment])
    assert done.returncode == -signal.SIGKILL
    assert not target.path.exists()
    assert restore(target, taken).stored == 1
    assert [target.path] == list(target.path.parent.iterdir())


def test_two_restores_do_not_meet(taken: Path, target: StateFolder) -> None:
    refused: list[str] = []

    def second(_: str) -> None:
        if target.path.parent.exists() and not refused:
            with pytest.raises(UnavailableError, match="already") as error:
                restore(target, taken)
            refused.append(str(error.value))

    restore(target, taken, going_on=second)
    assert len(refused) == 1


def test_the_tables_are_those_of_the_schema(tmp_path: Path) -> None:
    """With their keys, and each after those that it refers to."""
    with Database(tmp_path / "gateway.db"):
        connection = sqlite3.connect(tmp_path / "gateway.db")
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert {*TABLES, "schema_version"} == set(names)
        for place, (table, key) in enumerate(TABLES.items()):
            columns = list(connection.execute(f"PRAGMA table_info({table})"))
            assert key == tuple(column[1] for column in sorted(columns, key=lambda one: one[5]) if column[5])
            others = {row[2] for row in connection.execute(f"PRAGMA foreign_key_list({table})")}
            assert others <= set(list(TABLES)[:place])
        connection.close()


def test_records_of_one_moment_are_read_while_others_are_written(tmp_path: Path) -> None:
    """A tenant and its token, made meanwhile, are both in the records or both not."""
    with Database(tmp_path / "gateway.db") as writer, Database(tmp_path / "gateway.db") as reader:
        Tenants(writer).create("before")
        with reader.snapshot():
            assert len(reader.rows("SELECT id FROM tenants")) == 1
            later = Tenants(writer).create("later")
            Tokens(writer).issue(later.id, ORDINARY_SCOPES)
            assert len(reader.rows("SELECT id FROM tenants")) == 1
            assert len(reader.rows("SELECT id FROM tokens")) == 0
        assert len(reader.rows("SELECT id FROM tenants")) == 2


def copied(log: Path, to: Path) -> None:
    to.mkdir()
    copy_log(log, KEY, lambda name, file, size: (to / name).write_bytes(file.read(size)))


def event(number: int) -> AuditEvent:
    return AuditEvent(kind="note", facts={"number": number})


def test_a_copy_of_the_log_ends_with_its_head(tmp_path: Path) -> None:
    """Entries that were written and not signed yet, or only in part, are not in it."""
    with AuditLog(tmp_path / "log", KEY, file_bytes=2000) as log:
        for number in range(30):
            log.append(event(number))
        head = log.mark
        newest = max((tmp_path / "log").glob("*.jsonl"))
        with newest.open("ab") as file:
            file.write(b'{"entry":{"at"')
        copied(tmp_path / "log", tmp_path / "copy")
    found = verify(tmp_path / "copy", KEY)
    assert (None, head, 0, 0) == (found.broken, found.last, found.unsigned, found.unfinished)
    assert len(list((tmp_path / "copy").glob("*.jsonl"))) > 2


def test_a_copy_of_a_log_whose_old_files_were_removed_verifies(tmp_path: Path) -> None:
    now = [1e9]
    with AuditLog(tmp_path / "log", KEY, file_bytes=500, keep=60, clock=lambda: now[0]) as log:
        for number in range(30):
            now[0] += 10
            log.append(event(number))
        assert log.trim() > 0
        copied(tmp_path / "log", tmp_path / "copy")
        assert verify(tmp_path / "copy", KEY).broken is None
    with AuditLog(tmp_path / "copy", KEY) as again:
        again.append(event(31))
    assert verify(tmp_path / "copy", KEY).broken is None


def test_members_have_the_size_that_was_promised(tmp_path: Path) -> None:
    """A file that was cut while it was copied ends the backup instead of damaging it."""
    header = BackupHeader(cenote="1", made=1.0, schema=1, with_store=True)
    cut = pytest.raises(UnavailableError, match=r"unexpected end|changed while")
    with BackupWriter(tmp_path / "file", header) as writer, cut:
        writer.add_file("state/x", io.BytesIO(b"short"), 10)
    assert [] == list(tmp_path.iterdir())


def test_only_names_of_members_are_written(tmp_path: Path) -> None:
    header = BackupHeader(cenote="1", made=1.0, schema=1, with_store=True)
    with BackupWriter(tmp_path / "file", header) as writer:
        with pytest.raises(UsageError, match="cannot be a member"):
            writer.add("state/../x", b"")
        writer.add("state/x", b"1")
        writer.publish()
    reader = BackupReader(tmp_path / "file")
    assert (header, {"backup.json", "state/x"}) == (reader.header, set(reader.check().members))
