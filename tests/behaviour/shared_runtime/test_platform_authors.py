"""Several authors on one remote runtime, where it matters that clients are remote."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.places import Place
from tests.waiting import PATIENCE

import cenote
from cenote.runtime import Function, PythonRuntime
from cenote_security.errors import RuntimeClosedError

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("platform")]


def test_two_clients_with_two_authors(where: Place, good: Callable) -> None:
    """A client that joins a runtime by its name can be a separate author, from any process."""
    one, two = (cenote.connect(where.destination.address, where.destination.token) for _ in range(2))
    with one.runtime("joint", attach=True) as first, two.runtime("joint", attach=True) as second:
        ana, ben = first.attach("ana"), second.attach("ben", scope="private")
        good(ana, "rows = [1]")
        good(ben, "shared.rows = [2]\nmine = 1")
        told = good(ana, "rows")
        assert ("[2]", "ana") == (told.value, told.author)
        assert ["`rows` was rebound by ben in step 2"] == [str(notice) for notice in told.notices]
        assert {"rows"} == {info.name for info in first.describe()}
    one.delete("joint")


def test_each_client_carries_out_what_it_offered(where: Place, good: Callable) -> None:
    """Two clients may offer different functions under one name, to authors with their own names."""
    here = cenote.connect(where.destination.address, where.destination.token)
    with here.runtime("offers", attach=True) as first, here.runtime("offers", attach=True) as second:
        ana, ben = first.attach("ana", scope="private"), second.attach("ben", scope="private")
        ana.inject(Function(lambda: "of ana", name="who", host=True))
        ben.inject(Function(lambda: "of ben", name="who", host=True))
        first.inject(Function(lambda: "of the owner", name="who", host=True))
        told = [good(one, "who()").value for one in (ana, ben, second)]
        assert ["'of ana'", "'of ben'", "'of the owner'"] == told
        ana.close()
        assert "'of ben'" == good(ben, "who()").value
    here.delete("offers")


@pytest.mark.usefixtures("patient")
def test_nobody_interrupts_anothers_cell(runtime: PythonRuntime, gate: Any, start: Callable) -> None:
    """Not even the owner can: on a platform each client has its own cells."""
    ana, twin, ben = runtime.attach("ana"), runtime.attach("ana"), runtime.attach("ben")
    cell = start(ana, "gate()\n'went on'")
    assert [False] * 3 == [who.interrupt() for who in (runtime, twin, ben)]
    assert not cell.done()
    assert ana.interrupt()
    assert "interrupt" == cell.result(PATIENCE).error.reason


def test_who_leaves_takes_back_what_waits(
    runtime: PythonRuntime, where: Place, gate: Any, start: Callable
) -> None:
    """Waiting cells never run, the running one is interrupted, and the cells of the others continue."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    running = start(ana, "kept = 1\ngate()\nkept = 2")
    taken_back = start(ana, "never = 1", waits=True)
    others = start(ben, "(kept, 'never' in globals())", waits=True)
    ana.close()
    for future in (running, taken_back):  # a client that has left gets no further output
        with pytest.raises(RuntimeClosedError, match="what ran was interrupted, and what waited is not run"):
            future.result(PATIENCE)
    assert "(1, False)" == others.result(PATIENCE).value
    assert where.hosted(runtime).running


def test_a_lost_client_takes_nobody_along(
    runtime: PythonRuntime, gate: Any, start: Callable, good: Callable
) -> None:
    """A broken connection is restored, by the same author, whose cell has continued."""
    ana, ben = runtime.attach("ana"), runtime.attach("ben")
    cell = start(ana, "gate()\n'went on'")
    cut = threading.Event()
    session = ana.core.backend._session  # type: ignore[attr-defined]

    def cut_line() -> None:
        session._line.cut()
        cut.set()

    session._loop.call_soon_threadsafe(cut_line)
    assert cut.wait(PATIENCE)
    gate.opened.set()
    result = cell.result(PATIENCE)
    assert ("'went on'", "ana") == (result.value, result.author)
    assert "ben" == good(ben, "1").author
