"""Patches of remote runtimes, when connections break and clients leave in the middle: done once, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.support.remote.cable import Cable
from tests.support.remote.small_platform import TOKEN, SmallPlatform
from tests.waiting import PATIENCE, until

import cenote
from cenote.harness import ApplyOptions, Patch, Progress
from cenote.runtime import PythonRuntime
from cenote_security.errors import RuntimeClosedError, UnavailableError
from cenote_security.policy import SandboxPolicy

Connect = Callable[..., PythonRuntime]

SMALL = SandboxPolicy(preload=())

ENDLESS = "import time\nopen('runs', 'a').write('b')\nwhile n > 1: time.sleep(0.01)\nm = n"
"""With an n above 1 it never ends."""

GROWN = Patch.replace_step(1, "n = 2")


def filled(runtime: PythonRuntime, *cells: str) -> PythonRuntime:
    for cell in cells:
        assert runtime.execute(cell).success
    return runtime


class Before:
    """A progress callback that does something, once, when a step is about to run."""

    def __init__(self, number: int, do: Callable[[], object]) -> None:
        self._number = number
        self._do: Callable[[], object] | None = do

    def __call__(self, progress: Progress) -> None:
        if progress.rerun and progress.number == self._number and self._do is not None:
            do, self._do = self._do, None
            do()


def test_a_patch_goes_on_when_its_line_breaks(
    own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """Each step is rerun once, and its client receives the whole result."""
    runs = "open('runs', 'a').write(str(n))"
    runtime = filled(connect(own_platform), "n = 1", runs, f"m = n; {runs}")
    state = runtime.state
    for number in (2, 3):
        plan = state.plan(Patch.replace_step(state.steps[0].number, f"n = {number}"))
        step = state.steps[1].number
        result = state.apply(plan, ApplyOptions(progress=Before(step, cable.cut)))
        assert ("applied", [f"n = {number}", runs]) == (
            result.status,
            [one.code for one in result.records[:2]],
        )
        assert b"%d%d" % (number, number) == runtime.files.read("runs")


def test_a_client_that_leaves_in_the_middle(own_platform: SmallPlatform) -> None:
    """Other clients find everything as it was."""
    platform = cenote.connect(own_platform.address, token=TOKEN)
    leaving = filled(platform.runtime("shared", sandbox=SMALL), "n = 1", ENDLESS)
    staying = platform.runtime("shared", attach=True)
    begun, ended = threading.Event(), list[BaseException]()

    def apply() -> None:
        plan = leaving.state.plan(GROWN)
        try:
            leaving.state.apply(plan, ApplyOptions(progress=Before(2, begun.set)))
        except BaseException as error:
            ended.append(error)

    applying = threading.Thread(target=apply)
    applying.start()
    assert begun.wait(PATIENCE)
    with pytest.raises(UnavailableError, match="another patch"):
        staying.state.apply(staying.state.plan(GROWN))
    leaving.close()
    applying.join(PATIENCE)
    assert [RuntimeClosedError] == [type(error) for error in ended]
    until(lambda: not any(hosted.patches.busy for hosted in own_platform.hosted.values()))
    assert ("(1, 1)", "b") == (staying.execute("n, m").value, staying.files.read("runs").decode())
    platform.delete("shared")


def test_whoever_cannot_wait_has_it_undone(platform: SmallPlatform, connect: Connect) -> None:
    """An error of the caller's own in the middle, or an interrupt of the running step."""
    runtime = filled(connect(platform), "n = 1", ENDLESS)
    with pytest.raises(ZeroDivisionError):
        runtime.state.apply(runtime.state.plan(GROWN), ApplyOptions(progress=Before(2, lambda: 1 // 0)))
    assert "(1, 1)" == runtime.execute("n, m").value
    over = threading.Event()

    def interrupt() -> None:  # as often as needed: the step is about to run
        while not over.wait(0.05):
            runtime.interrupt()

    options = ApplyOptions(progress=Before(2, threading.Thread(target=interrupt).start))
    result = runtime.state.apply(runtime.state.plan(GROWN), options)
    over.set()
    assert ("failed", "KeyboardInterrupt") == (result.status, result.failure and result.failure.error.type)
    assert "(1, 1)" == runtime.execute("n, m").value
