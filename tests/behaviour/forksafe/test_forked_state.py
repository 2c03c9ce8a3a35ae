"""What a copy of a process restores, draws again or makes its own when it takes over."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import socket
import ssl
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import PATIENCE

from cenote import PythonRuntime, SandboxPolicy
from cenote_worker.jail.cells import event_loop
from cenote_worker.jail.forking import random_state
from cenote_worker.jail.process import proc_info

MANY = 100
"""Turns of an event loop that does nothing."""


class Copy:
    """A forked process that does one thing on command, and reports the result."""

    def __init__(self, work: Callable[[], object]) -> None:
        go, self._go = os.pipe()
        self._answer, answer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._pid = os.fork()
        if self._pid == 0:
            try:
                os.read(go, 1)
                os.write(answer, json.dumps(work()).encode())
            finally:
                os._exit(0)
        os.close(go)
        os.close(answer)

    def result(self) -> object:
        os.write(self._go, b"g")
        os.close(self._go)
        with open(self._answer) as lines:
            text = lines.read()
        os.waitpid(self._pid, 0)
        return json.loads(text)


def draws() -> list[object]:
    return [random.random(), float(np.random.random())]


# -- random numbers ---------------------------------------------------------------------------------------


def test_a_state_that_is_gone_back_to_draws_the_same_numbers() -> None:
    """As if nothing had been drawn since."""
    state = random_state.remember()
    copy = Copy(lambda: (random_state.put_back(state), draws())[1])
    assert draws() == copy.result()


def test_branches_draw_numbers_of_their_own() -> None:
    """The original, and each of its copies."""

    def branch() -> list[object]:
        random_state.draw_anew()
        return draws()

    first, second = Copy(branch).result(), Copy(branch).result()
    assert 6 == len({*draws(), *first, *second})


def test_a_generator_in_a_variable_is_a_value() -> None:
    """A branch has its own unchanged copy of it."""
    generator = np.random.default_rng(7)

    def branch() -> float:
        random_state.draw_anew()
        return float(generator.random())

    copy = Copy(branch)
    assert float(generator.random()) == copy.result()


def test_secrets_never_repeat() -> None:
    """Whatever state is restored."""

    def tokens() -> list[str]:
        return [secrets.token_hex(), str(uuid.uuid4()), ssl.RAND_bytes(16).hex()]

    tokens()
    state = random_state.remember()
    copy = Copy(lambda: (random_state.put_back(state), tokens())[1])
    assert 6 == len({*tokens(), *copy.result()})


# -- open files -------------------------------------------------------------------------------------------


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    """Original and copy share an open file's position: bytes read by one would be missing in the other."""
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(100_000)))
    with open(tmp_path / "lines") as lines:
        assert "0\n" == next(lines)
        positions = proc_info.file_positions()
        copy = Copy(lambda: (proc_info.restore_positions(positions), [int(line) for line in lines])[1])
        assert list(range(1, 100_000)) == [int(line) for line in lines]
        assert list(range(1, 100_000)) == copy.result()


def test_a_descriptor_that_is_another_file_by_now_is_told(tmp_path: Path) -> None:
    """Its position is unchanged."""
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    with open(tmp_path / "one") as one:
        positions = {one.fileno(): proc_info.file_positions()[one.fileno()]}
        with open(tmp_path / "two") as two:
            os.dup2(two.fileno(), one.fileno())
        assert [one.fileno()] == proc_info.restore_positions(positions)


# -- event loops ------------------------------------------------------------------------------------------


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def turns_in(loop: asyncio.AbstractEventLoop, seconds: float) -> int:
    """How often a loop iterates while it only waits; at most MANY are counted."""
    turns = 0
    plain = loop._run_once

    def counted() -> None:
        nonlocal turns
        turns += 1
        if turns > MANY:
            loop.stop()
        plain()

    loop._run_once = counted
    with suppress(RuntimeError):  # it was stopped
        loop.run_until_complete(asyncio.sleep(seconds))
    return turns


def test_a_copied_loop_is_not_woken_by_what_the_original_waits_for(loop: asyncio.AbstractEventLoop) -> None:
    """The kernel's list of descriptors is shared until the copy has one of its own."""

    def own() -> int:
        event_loop.make_own(loop)
        return turns_in(loop, 0.05)

    copy, spoilt = Copy(own), Copy(lambda: turns_in(loop, PATIENCE))
    left, right = socket.socketpair()
    with left, right:
        loop.add_reader(left, lambda: None)
        right.send(b"x")
        assert MANY < spoilt.result()
        assert 10 > copy.result()
        loop.remove_reader(left)


def test_a_copied_loop_waits_for_what_it_waited_for(loop: asyncio.AbstractEventLoop) -> None:
    """And threads can wake it; the original is unaffected."""
    left, right = socket.socketpair()
    with left, right:
        heard: list[bytes] = []
        loop.add_reader(left, lambda: heard.append(left.recv(1)))

        async def hear() -> int:
            while not heard:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            return await loop.run_in_executor(None, len, heard)

        copy = Copy(lambda: (event_loop.make_own(loop), loop.run_until_complete(hear()))[1])
        right.send(b"x")
        assert 1 == copy.result()
        right.send(b"y")
        assert 1 == loop.run_until_complete(hear())
        loop.remove_reader(left)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["strict", "landlock"])
def test_open_files_are_found_inside_a_jail(isolation: Any) -> None:
    """At `landlock` a process may not list its descriptors, and tries them."""
    code = (
        "from cenote_worker.jail.process import proc_info\n"
        "file = open('data', 'w+'); file.write('12345'); file.flush()\n"
        "print(proc_info.file_positions()[file.fileno()].at)"
    )
    with PythonRuntime(sandbox=SandboxPolicy(isolation=isolation)) as runtime:
        assert "5\n" == runtime.execute(code).stdout
