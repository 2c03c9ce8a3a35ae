"""Artifacts of remote runtimes: available to each client of the runtime, across broken connections, and changed by
its owner only.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.behaviour.remote.test_patches_on_the_way import Before, filled
from tests.support.remote.cable import Cable
from tests.support.remote.small_platform import TOKEN, SmallPlatform

import cenote
from cenote.harness import ApplyOptions, Artifact, BuildOptions
from cenote.runtime import PythonRuntime
from cenote_security.errors import UsageError
from cenote_security.policy import SandboxPolicy
from cenote_worker.history.events import ArtifactDeclared

Connect = Callable[..., PythonRuntime]

SMALL = SandboxPolicy(preload=())
ARTIFACTS = [Artifact("rate", "function"), Artifact("test_*", "tests"), Artifact("made", "dataset")]
CELLS = ("def rate(): return 2", "def test_rate(): assert rate() > 1", "made = rate() * 10")


def test_what_one_client_declares_another_builds(own_platform: SmallPlatform) -> None:
    """Both query the same history. A client with an old copy of it gets the error about what is inconsistent."""
    platform = cenote.connect(own_platform.address, token=TOKEN)
    one = filled(platform.runtime("shared", sandbox=SMALL), *CELLS)
    other = platform.runtime("shared", attach=True)
    old = other.state
    one.state.declare(*ARTIFACTS)
    assert "built" == one.state.build().status
    filled(one, "def rate(): return 3")
    assert ["made", "rate", "test_*"] == [each.name for each in other.state.artifacts]
    built = other.state.build()
    assert (("made", "test_*"), ("passed",), 30) == (
        built.rebuilt,
        tuple(test.outcome for test in built.tests),
        one.retrieve("made"),
    )
    old.drop("rate")
    one.state.declare(Artifact("rate", "function"), Artifact("made", "dataset", ("rate",)))
    with pytest.raises(UsageError, match="made depends on rate"):
        old._site.declare([ArtifactDeclared(name="rate", dropped=True)])  # as a client with an old copy
    platform.delete("shared")


def test_a_build_goes_on_when_its_line_breaks(
    own_platform: SmallPlatform, cable: Cable, connect: Connect
) -> None:
    """The files are those of one run, and its client receives the whole result."""
    runs = "open('runs', 'a').write('b')"
    runtime = filled(connect(own_platform), *CELLS[:2], f"{CELLS[2]}; {runs}")
    runtime.state.declare(*ARTIFACTS)
    filled(runtime, "def rate(): return 3")
    made = runtime.state.steps[2].number
    result = runtime.state.build(BuildOptions(apply=ApplyOptions(progress=Before(made, cable.cut))))
    assert ("built", ["test_rate"], b"b", 30) == (
        result.status,
        [test.name for test in result.tests],
        runtime.files.read("runs"),
        runtime.retrieve("made"),
    )
    assert result.patch is not None
    assert "applied" == runtime.state.revert(result.patch.id).status
    assert 20 == runtime.retrieve("made")


def test_what_is_only_for_the_owner(platform: SmallPlatform, connect: Connect) -> None:
    """An attached author declares nothing, builds nothing, and tries no programs; it may query."""
    runtime = filled(connect(platform), "x = 1")
    runtime.state.declare(Artifact("x", "dataset"))
    state = runtime.attach("ana").state
    assert 1 == state.artifact("x").step
    for refused in (
        lambda: state.declare(Artifact("y", "dataset")),
        lambda: state.drop("x"),
        state.build,
        lambda: state.verify(state.slice("x")),
    ):
        with pytest.raises(UsageError, match="only the owner"):
            refused()
