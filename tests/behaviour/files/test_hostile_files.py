"""Hostile working directories: names, kinds and numbers of files that are meant to harm the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from cenote.runtime import PythonRuntime
from cenote_security.errors import FileRefusedError, JailError, UnknownFileError
from cenote_worker.supervisor.frame_parser import MAX_ENTRIES

NAMES = [b"\xff\xfe", b"\x1b[31mred", b"new\nline", "right-to-left \u202e".encode(), b"x" * 255, b"..."]


def test_hostile_names(runtime: PythonRuntime) -> None:
    """Any name is listed in printable text, and its bytes open it."""
    runtime.execute(f"for name in {NAMES!r}: open(name, 'wb').write(name)")
    entries = runtime.files.list().entries
    assert sorted(NAMES) == [entry.raw for entry in entries]
    assert all(entry.name.isprintable() for entry in entries)
    assert "\\x1b[31mred" in [entry.name for entry in entries]
    assert NAMES == [runtime.files.read(name) for name in NAMES]


def test_an_error_shows_no_control_characters(runtime: PythonRuntime) -> None:
    """The same holds for a message that names a hostile file."""
    with pytest.raises(UnknownFileError) as caught:
        runtime.files.read(b"\x1b[2Jgone\xff")
    assert str(caught.value).isprintable()


@pytest.mark.slow
def test_more_files_than_are_listed(runtime: PythonRuntime) -> None:
    """A folder of any size costs the client ten thousand entries, and reports that it has more."""
    runtime.execute(
        f"import os\nos.mkdir('many')\nfor n in range({MAX_ENTRIES + 1}): os.mknod(f'many/{{n}}')"
    )
    listing = runtime.files.list("many")
    assert (MAX_ENTRIES, False) == (len(listing), listing.complete)
    runtime.execute("os.unlink('many/0')")
    listing = runtime.files.list("many")
    assert (MAX_ENTRIES, True) == (len(listing), listing.complete)


def test_links_are_shown_and_not_followed(runtime: PythonRuntime) -> None:
    """Neither as the file nor in its path; replacing and deleting affect the link itself."""
    runtime.execute(
        "import os\nos.mkdir('real')\nopen('real/file', 'w').write('x')\n"
        "os.symlink('real/file', 'link')\nos.symlink('real', 'way')\nos.symlink('/etc/hostname', 'out')"
    )
    for path in ("link", "way/file", "out"):
        with pytest.raises(FileRefusedError):
            runtime.files.read(path)
    with pytest.raises(FileRefusedError):
        runtime.files.write("way/new", "y")
    runtime.files.write("link", "y", overwrite=True)
    runtime.files.delete("way")
    assert (b"x", b"y") == (runtime.files.read("real/file"), runtime.files.read("link"))


@pytest.mark.parametrize(
    "make",
    [
        "os.mkfifo('it')",
        "os.mkdir('it')",
        "socket.socket(socket.AF_UNIX).bind('it')",
        "os.symlink('/dev/zero', 'it')",
    ],
    ids=["fifo", "folder", "socket", "device"],
)
def test_only_regular_files_are_read(runtime: PythonRuntime, make: str, tmp_path: Path) -> None:
    """A pipe does not hang the client, a device does not fill its memory; the runtime continues."""
    runtime.execute(f"import os, socket\ntry:\n    {make}\nexcept OSError:\n    os.mkfifo('it')")
    for attempt in (lambda: runtime.files.read("it"), lambda: runtime.files.download("it", tmp_path / "it")):
        with pytest.raises(FileRefusedError):
            attempt()
    assert [] == list(tmp_path.iterdir())
    assert "2" == runtime.execute("1 + 1").value


def test_a_sparse_file(runtime: PythonRuntime) -> None:
    """A terabyte of zeros is refused by its size, or could not be made at all."""
    made = runtime.execute("import os\nopen('sparse', 'w').close()\nos.truncate('sparse', 1 << 40)").success
    if made:
        with pytest.raises(FileRefusedError, match="1099511627776 bytes"):
            runtime.files.read("sparse")
    assert "2" == runtime.execute("1 + 1").value


FORGED = """
from cenote_worker.jail.workdir import requests as workdir
from cenote_worker.transport.content import Content
def answer(self, request, descriptors, reply):
    {body}
workdir.Workdir.answer = answer
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    "body",
    [
        "[reply.folder.entries.add(name=b'x') for _ in range(10_001)]",
        "reply.folder.entries.add(name=b'x' * 4096)",
        "reply.done.SetInParent()",
        "reply.file.content.size = 10",
    ],
    ids=["too many entries", "a name that is too long", "another answer", "a file instead"],
)
def test_a_worker_that_lies_about_folders(runtime: PythonRuntime, body: str) -> None:
    """An impossible answer is a protocol violation: that jail ends, the next call has a new one."""
    runtime.execute(FORGED.format(body=body))
    with pytest.raises(JailError):
        runtime.files.list()
    assert 0 == len(runtime.files.list())


@pytest.mark.parametrize("count", [0, 2])
def test_a_stat_of_several_files(runtime: PythonRuntime, count: int) -> None:
    """One path has one entry."""
    body = f"reply.folder.SetInParent(); [reply.folder.entries.add(name=b'x') for _ in range({count})]"
    runtime.execute(FORGED.format(body=body))
    with pytest.raises(JailError, match=f"as {count} entries"):
        runtime.files.stat("x")


def test_more_bytes_than_were_asked_for(runtime: PythonRuntime) -> None:
    """A range with more bytes than requested is refused."""
    runtime.execute(FORGED.format(body="reply.file.content.inline = b'xxx'; reply.file.content.size = 3"))
    with pytest.raises(JailError, match="more of 'x' than was asked for"):
        runtime.files.read("x", 0, 2)
    assert b"xxx" == runtime.files.read("x", 0, 3)


def test_impossible_entries(runtime: PythonRuntime) -> None:
    """Unknown kinds and invalid times become harmless ones."""
    body = "reply.folder.entries.add(name=b'x', kind=99, modified=float('nan'), size=2**64 - 1)"
    runtime.execute(FORGED.format(body=body))
    entry = runtime.files.stat("x")
    assert ("other", 0.0, 2**64 - 1) == (entry.kind, entry.modified, entry.size)


def test_text_of_a_refusal(runtime: PythonRuntime) -> None:
    """A hostile worker's text about a failure is bounded, and harmless on a terminal."""
    runtime.execute(FORGED.format(body="raise OSError(5, '\\x1b[2J' * 100_000)"))
    with pytest.raises(FileRefusedError) as caught:
        runtime.files.read("x")
    assert caught.value.reason.isprintable()
    assert len(caught.value.reason) < 20_000


def test_a_worker_that_hangs_up(runtime: PythonRuntime) -> None:
    """A jail that dies during a file operation is reported as lost."""
    runtime.execute(FORGED.format(body="import os; os._exit(3)"))
    with pytest.raises(JailError, match="ended"):
        runtime.files.read("x")
