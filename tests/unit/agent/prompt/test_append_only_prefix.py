"""What a model has been sent stays as it is, so that a provider's cache keeps it: prompts only grow at their end.

Cached tokens cost a tenth. A prompt that is rewritten costs the whole conversation anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tests.support.agent.playbook import Playbook, Says, block, core, failed, printed, scene, words

from cenote.agent.decide.compaction import CompactionPolicy
from cenote.agent.vocabulary.commands import RuntimeDescription
from cenote.agent.vocabulary.conversation import Counter
from cenote.models.messages import Message
from cenote.runtime.inject.injectables import Function

Prompt = Sequence[Message]
WINDOW = 1000
"""Words. Folding begins above 800."""


def extends(before: Prompt, after: Prompt) -> bool:
    """Whether all that was sent before is sent again, at the beginning and unchanged."""
    return list(after[: len(before)]) == list(before)


def size(prompt: Prompt) -> int:
    return Counter(count=words).messages(prompt)


def rich_world() -> Playbook:
    """Everything that puts notes into a conversation: errors, refused and repeated blocks, skills, long output."""
    cells = [
        printed("1"),
        failed("KeyError", "'a'"),
        printed("x" * 20_000),
        printed("same"),
        printed("same"),
        printed("2"),
    ]
    blocks = ["show(1)", "d['a']", "forbidden()", "print(x)", "again()", "again()", "show(2)"]
    return Playbook(
        [*map(block, blocks), "Done."],
        cells,
        violations={"forbidden()": ("`forbidden` is blocked",)},
        settled=[("skill `a` is ready",)],
        scenes=[scene("a")],
    )


def test_the_prompt_prefix_is_append_only_over_a_run() -> None:
    """Each call sends the former prompt unchanged, then what is new: only that costs the full price."""
    world = rich_world()
    world.run(core(has_skills=True, namespace_delta=True))
    assert 8 == len(world.prompts)
    assert all(extends(*pair) for pair in pairwise(world.prompts))


def test_further_tasks_leave_the_prefix_as_it_is() -> None:
    """What has changed in the namespace stands before the task, and not in the system prompt."""
    agent = core()
    came = RuntimeDescription(functions=(Function(len, description="Counts."),))
    world = Playbook([block("a = 1"), "Done.", block("b = 2"), "Done."], scenes=[scene(), came])
    world.run(agent)
    world.run(agent, "another task")
    news = world.prompts[2][-1].content
    assert ("Counts." in news, news.endswith("another task")) == (True, True)
    assert all(extends(*pair) for pair in pairwise(world.prompts))


def test_answers_that_were_asked_for_again_leave_the_prefix_as_it_is() -> None:
    """What was cut off is taken out again. What had been sent before it stays."""
    cut = Says("```python\nx = 1\ny =", "length")
    world = Playbook([block("show(1)"), cut, Says("", "stop"), block("show(2)"), "Done."])
    world.run(core())
    first, second, *again, last = world.prompts
    assert extends(first, second)
    assert all(extends(second, prompt) for prompt in (*again, last))
    assert "y =" not in "".join(message.content for message in last)


def test_the_prefix_is_folded_near_the_end_of_the_window_only() -> None:
    """Above 80 % of it. A folded prompt is much shorter, so that the next folding is far off."""
    turns = [block(f"# step {i}\nshow({i})") for i in range(30)]
    world = Playbook([*turns, "Done."], [printed(f"{i} " * 60) for i in range(30)])
    world.run(core(context_window=WINDOW, max_steps=40, compaction=CompactionPolicy(summarise=False)))
    folds = [(a, b) for a, b in pairwise(world.prompts) if not extends(a, b)]
    assert 2 <= len(folds) <= 8
    assert len(folds) == len(world.of("compacting"))
    # The size before a fold is that of the prompt that was sent, with the answer and the output after it.
    assert all(size(before) > 0.8 * WINDOW - 90 for before, _ in folds)
    assert all(size(after) < 0.6 * WINDOW for _, after in folds)
