"""PyTorch, where it is installed: traps, a notebook under patches, and states that are stored and branched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.soundness.notebooks import notebook as notebooks
from tests.soundness.test_soundness_traps import check
from tests.support.soundness.trap import Trap, load

from cenote.harness import ApplyOptions, Patch
from cenote.runtime import PythonRuntime
from cenote_security.policy import SandboxPolicy

pytest.importorskip("torch")

PRELOAD = ("numpy", "torch")
AS_A_NOTEBOOK = ApplyOptions(stop_on_failure=False)


@pytest.fixture(scope="module")
def full() -> Iterator[PythonRuntime]:
    policy = SandboxPolicy(snapshots="none", tracking=False, preload=PRELOAD)
    with PythonRuntime(sandbox=policy) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def live() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=PRELOAD)) as runtime:
        yield runtime


@pytest.mark.parametrize("trap", load(["traps-torch.txt"]), ids=lambda trap: trap.name)
def test_a_patch_gives_what_a_full_run_gives(trap: Trap, full: PythonRuntime, live: PythonRuntime) -> None:
    check(trap, full, live)


def test_training_is_left_alone_by_what_does_not_concern_it(
    live: PythonRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a notebook of 21 steps, two depend on the threshold, and one has written a file."""
    monkeypatch.setattr(notebooks, "CORPUS", Path(notebooks.CORPUS) / "torch")
    notebook = notebooks.load("mlp")
    edit = notebook.edits[1]
    live.reset()
    for cell in notebook.cells:
        assert live.execute(cell).error is None
    state = live.state
    changed = notebook.edited(edit)[edit.step - 1]
    plan = state.plan(Patch.replace_step(state.steps[edit.step - 1].number, changed))
    result = state.apply(plan, AS_A_NOTEBOOK)
    assert "applied" == result.status
    assert 4 >= len(result.steps_rerun)
    assert "accuracy" in result.changed


TRAINED = """
import torch
torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
x = torch.randn(16, 4)
y = x[:, :1]
loss = (net(x) - y).square().mean()
loss.backward()
opt.step(); schedule.step()
generator = torch.Generator().manual_seed(5)
torch.set_printoptions(precision=2)
"""

LOOK = """
shared = y.untyped_storage() is x.untyped_storage()
grad, moment = net[0].weight.grad.sum().item(), opt.state[net[0].weight]["exp_avg"].sum().item()
drawn = torch.rand(2).tolist(), torch.rand(2, generator=generator).tolist()
opt.step(); schedule.step()
rate = opt.param_groups[0]["lr"]
(shared, grad, moment, drawn, net(x).sum().item(), rate, repr(x[0]), loss.item(), loss.requires_grad)
"""


def test_models_optimizers_and_generators_sleep_and_branch(tmp_path: Path) -> None:
    """Gradients, moments, shared memory, random numbers and settings are restored; branches draw their own."""
    policy = SandboxPolicy(preload=PRELOAD)
    with PythonRuntime(store=str(tmp_path), name="model", sandbox=policy) as runtime:
        assert runtime.execute(TRAINED).error is None
        wanted, others = runtime.fork(deterministic=True), runtime.fork(count=2)
        runtime.hibernate()
        woken = runtime.execute(LOOK)
        with wanted:
            assert (None, wanted.execute(LOOK).value) == (woken.error, woken.value)
        assert 2 == len({branch.execute("torch.rand(2).tolist()").value for branch in others})
        for branch in others:
            branch.close()


def test_jails_with_pytorch_preloaded_draw_their_own_numbers() -> None:
    policy = SandboxPolicy(preload=PRELOAD)
    with PythonRuntime(sandbox=policy) as one, PythonRuntime(sandbox=policy) as other:
        draw = "import torch; torch.rand(2).tolist()"
        assert one.execute(draw).value != other.execute(draw).value
