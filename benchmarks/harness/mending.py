"""An agent has run a notebook and must change one step: it writes a patch or writes the steps again.

Models are scripted to behave well. A patch quotes the lines that change. A model that writes the steps again knows
which steps depend on the change and writes only those, in one block. A third way writes every later step.

Each of the first two is played twice: the answer comes in a turn of its own, or from `reply` in the same block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Literal

from tests.soundness.notebooks.notebook import Edit, Notebook, load

from benchmarks.harness.notebooks import DATA, differ, run_cells
from benchmarks.state.cpu import timed
from benchmarks.tokens.account import PER_PART, Cost, Count, ModelCall, add_up
from cenote.agent import CaveAgent
from cenote.agent.prompt.prompts import PATCHES
from cenote.demo.agents import read_csv_bytes
from cenote.models import Message, ScriptedModel
from cenote.runtime import PythonRuntime
from cenote.tokens import count_tokens

Way = Literal["patch", "patch, reply", "affected anew", "anew, reply", "all behind anew"]
WAYS: tuple[Way, ...] = ("patch", "patch, reply", "affected anew", "anew, reply", "all behind anew")
MODEL = "gpt-4.1"
"""The model whose tokenizer counts."""
DONE = "Done."
REPLY = f"reply({DONE!r})"


@dataclass(frozen=True, kw_only=True)
class Mended:
    """One change made in one way.

    cost: of the model calls from the request on; earlier prompts are cached. cpu, wall: seconds of the same calls.
    whole: of all calls, those that ran the notebook included. where: what the tokens of the last prompt are.
    outcome: `success`, how the agent's run ended, or that the step does not have the expected code.
    """

    notebook: str
    reason: str
    way: Way
    cost: Cost
    whole: Cost
    where: Mapping[str, int]
    cpu: float
    wall: float
    outcome: str


def measure(names: Sequence[str], edits: int, progress: Callable[[Mended], None]) -> list[Mended]:
    """Number of changes made to each of these notebooks, in each way."""
    found = []
    for name in names:
        notebook = load(name)
        for edit in notebook.edits[:edits]:
            affected = _affected(notebook, edit)
            for way in WAYS:
                found.append(_play(notebook, edit, way, _answer(notebook, edit, way, affected)))
                progress(found[-1])
    return found


def _affected(notebook: Notebook, edit: Edit) -> list[int]:
    """Steps, from 1, that a full run shows to depend on the change, including the changed step."""
    with PythonRuntime() as one, PythonRuntime() as other:
        run_cells(one, notebook.cells)
        run_cells(other, notebook.edited(edit))
        pairs = zip(one.state.steps[edit.step :], other.state.steps[edit.step :], strict=True)
        return [edit.step, *(n for n, pair in enumerate(pairs, edit.step + 1) if differ(*pair))]


def _answer(notebook: Notebook, edit: Edit, way: Way, affected: Sequence[int]) -> str:
    """The model's answer when the change is requested."""
    cells = notebook.edited(edit)
    if _is_patch(way):
        block = patch_block(edit.step, edit.reason, notebook.cells[edit.step - 1], cells[edit.step - 1])
    else:
        steps = range(edit.step, len(cells) + 1) if way == "all behind anew" else affected
        code = "\n\n".join(cells[step - 1] for step in steps)
        block = f"```python\n{code}\n```"
    return f"{block.removesuffix('```')}{REPLY}\n```" if way.endswith("reply") else block


def _is_patch(way: Way) -> bool:
    return way.startswith("patch")


def patch_block(step: int, reason: str, old: str, new: str) -> str:
    """The lines that differ, preceded by as many lines as make them unique."""
    before, after = old.split("\n"), new.split("\n")
    parts = [
        op for op in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if op[0] != "equal"
    ]
    start, end = parts[0][1], max(parts[-1][2], parts[0][1] + 1)
    tail = len(before) - end
    first = start
    while old.count("\n".join(before[first:end])) > 1 and first:
        first -= 1
    lines = [f" {line}" for line in before[first:start]]
    lines += [f"-{line}" for line in before[start:end]]
    lines += [f"+{line}" for line in after[start : len(after) - tail]]
    return "\n".join([f"```patch\nstep {step}: {reason}", *lines, "```"])


def _play(notebook: Notebook, edit: Edit, way: Way, answer: str) -> Mended:
    blocks = [f"```python\n{cell}\n```" for cell in notebook.cells]
    script = [*blocks, DONE, answer, DONE]
    model = ScriptedModel(script)
    with PythonRuntime() as runtime:
        runtime.files.write(DATA, read_csv_bytes())
        agent = CaveAgent(model, runtime, max_steps=len(script), patches=_is_patch(way))
        agent.run_sync("Analyse the data step by step.")
        before = len(model.prompts)
        response, wall, cpu = timed(
            partial(agent.run_sync, f"Please change step {edit.step}: {edit.reason}.")
        )
        changed = runtime.state.steps[edit.step - 1].code == notebook.edited(edit)[edit.step - 1]
    calls = [
        ModelCall(prompt=tuple(f"{one.role}\n{one.content}" for one in prompt), completion=text)
        for prompt, text in zip(model.prompts, script, strict=False)
    ]
    count = partial(count_tokens, model_id=MODEL)
    cost = add_up(calls[before:], count, after=calls[before - 1])
    return Mended(
        notebook=notebook.name,
        reason=edit.reason,
        way=way,
        cost=cost,
        whole=add_up(calls, count),
        where=_where(model.prompts[-1], 2 + 2 * len(notebook.cells), count),
        cpu=cpu,
        wall=wall,
        outcome=response.status.value if changed or not _is_patch(way) else "the patch was not applied",
    )


def _where(prompt: Sequence[Message], before: int, count: Count) -> dict[str, int]:
    """Tokens of a prompt by what they are for. before: how many messages stood in it when the notebook had run."""
    how = sum(count(PATCHES) for message in prompt if PATCHES in message.content)
    parts = dict.fromkeys(("instructions", "code", "outputs", "repair"), 0)
    for place, message in enumerate(prompt):
        part = {"system": "instructions", "assistant": "code"}.get(message.role, "outputs")
        parts[part if place < before else "repair"] += PER_PART + count(f"{message.role}\n{message.content}")
    holder = next((place for place, message in enumerate(prompt) if PATCHES in message.content), 0)
    parts["outputs" if holder < before else "repair"] -= how
    return {**parts, "how to patch": how}
