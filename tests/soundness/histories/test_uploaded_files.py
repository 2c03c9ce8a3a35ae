"""Patches that begin before a client has written a file: the file is written again, or the error says why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.soundness.histories.test_second_start import forget

from cenote.harness import Patch
from cenote.harness.artifacts.arrangement import Rearrange
from cenote.harness.patching.errors import NoWayError
from cenote.runtime import PythonRuntime
from cenote_security.errors import CenoteError, FileRefusedError
from cenote_security.policy import SandboxPolicy
from cenote_worker.history.bounds import MAX_FILE
from cenote_worker.runtime.runtime import HostedRuntime

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

LISTED = "import os\nfiles = sorted(os.listdir('.'))"


def good(runtime: PythonRuntime, code: str) -> None:
    result = runtime.execute(code)
    assert result.success, result.error


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as runtime:
        yield runtime


def test_an_upload_is_a_step_that_is_done_again(runtime: PythonRuntime) -> None:
    """After a step that runs again, and that writes the same file."""
    good(runtime, "n = 1\nopen('a.txt', 'w').write('by hand')")
    runtime.files.write("a.txt", b"uploaded", overwrite=True)
    good(runtime, "text = open('a.txt').read() + str(n)")
    state = runtime.state
    result = state.apply(state.plan(Patch.replace_step(1, "n = 2\nopen('a.txt', 'w').write('anew')")))
    assert ("applied", "uploaded2", b"uploaded") == (
        result.status,
        runtime.retrieve("text"),
        runtime.files.read("a.txt"),
    )
    new = state.line(state.head)[1]
    assert ("upload", 2, ("a.txt",)) == (new.record.kind, new.record.origin, new.record.names)


def test_one_that_never_was_and_is_taken_back(runtime: PythonRuntime) -> None:
    """Listing the folder shows both, though another file was uploaded since; empty folders count."""
    good(runtime, "import os\nfor path in ('data', 'data/a'): assert not os.path.exists(path)")
    runtime.files.write("data/a", b"1")
    runtime.files.write("b", b"2")
    good(runtime, LISTED)
    state = runtime.state
    plan = state.plan(Patch.remove_step(2))
    assert "applied" == state.apply(plan).status
    assert ["b"] == runtime.retrieve("files")
    assert "applied" == state.revert(plan.patch.id).status
    assert (["b", "data"], b"1") == (runtime.retrieve("files"), runtime.files.read("data/a"))


def test_a_removed_file_is_removed_again(runtime: PythonRuntime) -> None:
    """The file need not exist any more; a failed removal leaves everything unchanged."""
    good(runtime, "n = 1\nopen('a', 'w').close()")
    runtime.files.delete("a")
    good(runtime, f"{LISTED}\nm = n")
    state = runtime.state
    for code in ("n = 2\nopen('a', 'w').write('2')", "n = 3"):
        assert (
            "applied"
            == state.apply(state.plan(Patch.replace_step(state.line(state.head)[0].number, code))).status
        )
        assert ([], int(code[4])) == (runtime.retrieve("files"), runtime.retrieve("m"))
    head, first = state.head, state.line(state.head)[0].number
    with pytest.raises(FileRefusedError):
        state.apply(
            state.plan(Patch.replace_step(first, "n = 4\nimport os\nos.mkdir('a')\nopen('a/b', 'w').close()"))
        )
    assert (head, "[]", "3") == (
        state.head,
        runtime.execute("os.listdir()").value,
        runtime.execute("n").value,
    )


@pytest.mark.at("embedded")
def test_an_upload_comes_earlier(runtime: PythonRuntime) -> None:
    """A history can be rearranged with it."""
    runtime.files.write("a", b"old")
    good(runtime, "text = open('a').read()")
    runtime.files.write("a", b"new", overwrite=True)
    state = runtime.state
    moved = Patch(changes=(Rearrange(moved=((2, 1, "it is needed there"),)),))
    assert "applied" == state.apply(state.plan(moved)).status
    assert "new" == runtime.retrieve("text")


def test_what_was_there_before_the_first_step_is_there_in_a_second_jail(
    runtime: PythonRuntime, hosted: HostedRuntime
) -> None:
    """The newest of each file; a jail after a reset begins without them."""
    runtime.files.write("data/a", b"1")
    runtime.files.write("data/a", b"22", overwrite=True)
    good(runtime, f"{LISTED}\nn = len(open('data/a').read())")
    forget(runtime, hosted)
    state = runtime.state
    assert (
        "applied"
        == state.apply(state.plan(Patch.replace_step(1, f"{LISTED}\nn = open('data/a').read()"))).status
    )
    assert (["data"], "22") == (runtime.retrieve("files"), runtime.retrieve("n"))
    runtime.reset()
    good(runtime, LISTED)
    assert [] == runtime.retrieve("files")


def test_what_is_too_much_to_be_kept_is_named(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Patches that begin after it apply. A file from before the first step too: no other jail begins with it."""
    runtime.files.write("early", bytes(MAX_FILE + 1))
    good(runtime, "n = 1")
    runtime.files.write("large", bytes(MAX_FILE + 1))
    runtime.files.write("small", bytes(MAX_FILE))
    good(runtime, "m = len(open('large', 'rb').read()) + len(open('early', 'rb').read())")
    state = runtime.state
    assert (
        "applied"
        == state.apply(state.plan(Patch.replace_step(4, "m = len(open('large', 'rb').read())"))).status
    )
    with pytest.raises(NoWayError, match="and the content of large, which a client wrote, was too much"):
        state.apply(state.plan(Patch.insert_step(1, "open('large', 'w').close()")))
    forget(runtime, hosted)
    with pytest.raises(CenoteError, match="kept any more"):
        state.apply(state.plan(Patch.replace_step(1, "n = 2\nopen('large', 'w').close()")))
    assert MAX_FILE + 1 == runtime.retrieve("m")
