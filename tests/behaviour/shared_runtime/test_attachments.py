"""Authors attached to one runtime: the author of each step, and what remains when one leaves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable
from cenote.security import ImportRule, SecurityChecker
from cenote_security.errors import (
    JailLostError,
    NameExistsError,
    RuntimeClosedError,
    UnknownNameError,
    UsageError,
)

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

DIE = "import os\nos.kill(os.getpid(), 9)"


@pytest.mark.at("embedded", "platform", "relayed")
def test_steps_are_counted_together_and_attributed(runtime: PythonRuntime) -> None:
    """One runtime, one count; each result names its step's author, and the owner's have no name."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    results = [who.execute("1") for who in (runtime, ana, ben, ana)]
    assert [(1, ""), (2, "ana"), (3, "ben"), (4, "ana")] == [(r.step, r.author) for r in results]
    assert ("", "ana", "shared") == (runtime.author, ana.author, ana.scope)


def test_a_failing_step_is_attributed(runtime: PythonRuntime) -> None:
    """Errors and refused cells have an author too."""
    assert "ana" == runtime.attach("ana").execute("1 / 0").author
    with PythonRuntime(security_checker=SecurityChecker([ImportRule({"socket"})])) as guarded:
        refused = guarded.attach("ben").execute("import socket")
        assert ("policy", "ben") == (refused.error.reason, refused.author)


def test_changes_are_seen_at_once(runtime: PythonRuntime, good: Callable) -> None:
    """In the default scope all authors work with the same names, including objects."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "rows = [1]")
    good(ben, "rows.append(2)")
    assert "[1, 2]" == good(runtime, "rows").value
    assert [1, 2] == ben.retrieve("rows")
    ana.update_variable("rows", [3])
    assert "[3]" == good(ben, "rows").value
    ben.delete("rows")
    with pytest.raises(UnknownNameError):
        ana.retrieve("rows")


def test_an_injection_is_for_all(runtime: PythonRuntime, good: Callable) -> None:
    """A name that one author injects cannot be injected by others, and agents of all authors see it."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    ana.inject(Function(len, name="measure", host=True))
    assert "3" == good(ben, "measure([1, 2, 3])").value
    assert ["measure"] == [function.name for function in ben.port.functions]
    with pytest.raises(NameExistsError):
        ben.inject(Variable("measure", 1))


def test_the_calls_of_an_attached_author(runtime: PythonRuntime) -> None:
    """An attached author has the same calls as the owner, including `files` and `attach`."""
    ana = runtime.attach("ana")
    ana.inject(Variable("data", [1]))
    reference = ana.share("data")
    runtime.update_variable("data", 2)
    ana.update_variable("data", reference)
    assert ["data"] == [info.name for info in ana.describe()]
    ana.files.write("note.txt", "hello")
    assert b"hello" == runtime.files.read("note.txt")
    assert runtime.isolation == ana.isolation
    assert runtime.limits == ana.limits
    assert () == ana.network_log
    assert "ben" == ana.attach("ben").execute("data").author


@pytest.mark.parametrize("author", ["", " ", "a\nb", "x" * 101, 5, None])
def test_names_that_cannot_stand_in_a_sentence(runtime: PythonRuntime, author: object) -> None:
    """They are refused before anything is attached."""
    with pytest.raises(UsageError, match="author"):
        runtime.attach(author)  # type: ignore[arg-type]


def test_a_longest_name_comes_back_whole(runtime: PythonRuntime) -> None:
    """A hundred characters are allowed, and a name passes through notices completely."""
    ana, long = runtime.attach("ana"), runtime.attach("é" * 100)
    ana.execute("x = [1]")
    long.execute("x = [2]")
    assert ["é" * 100] == [notice.author for notice in ana.execute("x").notices]


def test_an_unknown_scope(runtime: PythonRuntime) -> None:
    """There are two scopes."""
    with pytest.raises(UsageError, match='"shared" or "private"'):
        runtime.attach("ana", scope="public")  # type: ignore[arg-type]


def test_only_the_owner_resets(runtime: PythonRuntime, good: Callable) -> None:
    """An author cannot reset the names of the others; after a reset by the owner, each gets one notice."""
    ana = runtime.attach("ana")
    good(ana, "x = 1")
    with pytest.raises(UsageError, match="owner"):
        ana.reset()
    runtime.reset()
    assert "NameError" == runtime.execute("x").error.type
    told = ana.execute("x")
    assert ("lost", "reset") == (told.state, told.error.reason)
    assert "NameError" == ana.execute("x").error.type


@pytest.mark.at("embedded", "platform", "relayed")
def test_everybody_hears_once_that_the_jail_is_gone(forgetful: PythonRuntime, good: Callable) -> None:
    """A cell that relies on what another's cell destroyed does not run, whichever author is first."""
    ana, ben, eva = (forgetful.attach(name) for name in ("ana", "ben", "eva"))
    for who in (forgetful, ana, ben, eva):
        good(who, "x = 1")
    killed = ana.execute(DIE)
    assert ("lost", "ana") == (killed.state, killed.author)
    assert "NameError" == ana.execute("x").error.type
    told = ben.execute("y = 1")
    assert ("lost", "ben") == (told.state, told.author)
    assert "the cell did not run" in told.error.message
    with pytest.raises(JailLostError):
        eva.describe()
    with pytest.raises(JailLostError):
        forgetful.retrieve("x")
    assert ["kept"] * 4 == [who.execute("2").state for who in (forgetful, ana, ben, eva)]


def test_a_new_author_has_lost_nothing(forgetful: PythonRuntime, good: Callable) -> None:
    """An author who attaches after the end of a jail gets no notice of it."""
    good(forgetful, "x = 1")
    assert "lost" == forgetful.execute(DIE).state
    assert "2" == good(forgetful.attach("ana"), "2").value


@pytest.mark.at("embedded", "platform", "relayed")
def test_closing_an_attachment_ends_nothing_else(runtime: PythonRuntime, good: Callable) -> None:
    """The runtime and the author's variables stay; calls of the closed attachment name the remedy."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    good(ana, "x = 1")
    ana.close()
    ana.close()
    assert "1" == good(ben, "x").value
    for call in (lambda: ana.execute("x"), lambda: ana.describe(), lambda: ana.status()):
        with pytest.raises(RuntimeClosedError, match="attach again"):
            call()
    assert "1" == good(runtime.attach("ana"), "x").value


def test_closing_the_runtime_closes_all(runtime: PythonRuntime, good: Callable) -> None:
    """An attached author does not own the runtime."""
    ana = runtime.attach("ana")
    good(ana, "x = 1")
    runtime.close()
    with pytest.raises(RuntimeClosedError, match="was closed"):
        ana.execute("x")


@pytest.mark.at("embedded")
def test_an_attachment_keeps_the_runtime(good: Callable) -> None:
    """A runtime without references ends when no author is attached any more, not before."""
    ana = PythonRuntime().attach("ana")
    gc.collect()
    good(ana, "x = 1")
    backend = ana.core.backend
    del ana
    gc.collect()
    with pytest.raises(RuntimeClosedError):
        backend.check_open()


@pytest.mark.at("embedded", "platform", "relayed")
async def test_the_async_face() -> None:
    """The same with await; many authors at once each get their own result."""
    async with AsyncPythonRuntime() as runtime:
        authors = [await runtime.attach(f"author {number}") for number in range(8)]
        results = await asyncio.gather(*(who.execute(f"{n} * 10") for n, who in enumerate(authors)))
        assert [str(number * 10) for number in range(8)] == [result.value for result in results]
        assert [f"author {number}" for number in range(8)] == [result.author for result in results]
        own = await runtime.attach("ana", scope="private")
        assert ("ana", "private") == (own.author, own.scope)
        await own.execute("x = 1")
        assert ["x"] == [info.name for info in await own.describe()]
        assert [] == await runtime.describe()
        await own.close()
        with pytest.raises(RuntimeClosedError):
            await own.execute("x")
        assert (await runtime.execute("1")).success
