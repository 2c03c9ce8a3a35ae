"""No value from a jail runs code, hangs or does harm in the process that takes it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.support.escape.arena import Arena
from tests.support.escape.attempts_values import VALUES

from cenote.runtime import Function, PythonRuntime
from cenote_security.attacks.escape_attempt import EscapeAttempt
from cenote_security.errors import CenoteError


@pytest.fixture
def victim(arena: Arena) -> Iterator[PythonRuntime]:
    listener = Function(lambda value: repr(type(value)), name="listen", host=True)
    with PythonRuntime(sandbox=arena.small_policy(), functions=[listener]) as runtime:
        yield runtime


def trapped(arena: Arena, attempt: EscapeAttempt) -> str:
    """A cell that leaves the attempt's value in `trap` without inspecting it."""
    call = f"trap = {attempt.name}(World(**{arena.facts()!r}))\n"
    head, _, _ = attempt.cell(arena.facts()).rpartition("try_it(")
    return head + call


@pytest.mark.sweep
@pytest.mark.parametrize("attempt", VALUES.attempts, ids=lambda attempt: attempt.name)
def test_a_trap_is_not_sprung(arena: Arena, victim: PythonRuntime, attempt: EscapeAttempt) -> None:
    """Retrieving, describing, showing, sharing and passing it to a host function: a Cenote error or plain data."""
    made = victim.execute(trapped(arena, attempt))
    assert made.success, made.error
    pid = os.getpid()
    for take in (lambda: victim.retrieve("trap"), victim.describe, lambda: victim.share("trap")):
        with suppress(CenoteError):
            take()
    for cell in ("trap", "listen(trap)"):
        shown = victim.execute(cell, timeout=20)
        assert len(str(shown.value)) + len(str(shown.error)) < 1 << 20
    assert pid == os.getpid()
    victim.reset()
    assert "42" == victim.execute("6 * 7").value
    assert [] == arena.breaches(made), attempt.reference


SLOW = """
import time
class Slow:
    def __reduce__(self):
        while True:
            time.sleep(0.01)
trap = Slow()
"""


@pytest.mark.parametrize("kind", ["retrieve", "share"])
def test_a_value_that_takes_forever(arena: Arena, kind: str) -> None:
    """Its caller can interrupt, and gets an error; others do not wait."""
    with PythonRuntime(sandbox=arena.policy) as runtime:
        runtime.execute(SLOW)
        told: list[BaseException] = []

        def take() -> None:
            try:
                getattr(runtime, kind)("trap")
            except CenoteError as error:
                told.append(error)

        thread = threading.Thread(target=take)
        thread.start()
        while thread.is_alive():
            assert "42" == arena.neighbour.execute("6 * 7").value
            runtime.interrupt()
            thread.join(0.05)
        assert 1 == len(told)
