"""Compaction: three tiers, a circuit breaker, and what remains of a conversation afterwards."""

from __future__ import annotations

from tests.support.agent.playbook import Playbook, Says, block, core, printed, scene

from cenote.agent.decide.compaction import MAX_FAILURES
from cenote.agent.prompt import prompts
from cenote.agent.prompt.system_prompt import PromptParts
from cenote.models.errors import ModelUnavailableError

WINDOW = 1000
"""Words; compaction starts above 800 and goes down to 500. The system prompt takes about 200."""

FULL = PromptParts(prompt="full")


def long_conversation(world: Playbook, **settings: object) -> Playbook:
    """Plays cells with long output, in a small window."""
    world.run(core(context_window=WINDOW, prompt=FULL, max_exec_output=100_000, max_steps=20, **settings))
    return world


def steps(count: int) -> list[str]:
    return [block(f"# step {i}\nprint({i})") for i in range(1, count + 1)]


def sent(world: Playbook) -> str:
    """The last prompt without the system prompt, as one text."""
    return "\n".join(message.content for message in world.prompts[-1][1:])


def test_short_conversations_are_left_alone() -> None:
    """No event and no change below the trigger."""
    world = long_conversation(Playbook([*steps(2), "Done."], [printed("word " * 50)] * 2))
    assert [] == world.of("compacting")
    assert 100 == sent(world).count("word")


def test_first_old_outputs_are_put_away() -> None:
    """They stay readable from the namespace; the code and the last two outputs stay verbatim."""
    outputs = [printed("first " * 450), printed("second " * 70), printed("third " * 70), printed("4 " * 40)]
    world = long_conversation(Playbook([*steps(4), "Done."], outputs))
    text = sent(world)
    assert "[output of 2708 characters put away; read_output(1) reads it]" in text
    assert "Output:\n" + "first " * 450 == world.kept[1]
    assert ("# step 1" in text, "third third" in text, "first first first" in text) == (True, True, True)
    assert text.count("first") < 30
    assert world.of("compacted")[0].startswith("outputs put away: ")


def test_then_steps_become_lines() -> None:
    """Many short steps: the purpose and the end of each stay, as one line."""
    code = [block(f"# look at order {i}\n" + "x = 1\n" * 30) for i in range(6)]
    world = long_conversation(Playbook([*code, "Done."], [printed(f"order {i} is open") for i in range(6)]))
    text = sent(world)
    assert "[earlier block: look at order 0 -> order 0 is open]" in text
    assert text.startswith("the task")
    assert "steps shortened to lines" in world.of("compacted")[0]
    assert "order 3 is open" in text


def test_then_the_model_summarises() -> None:
    """The summary replaces old parts; it names existing variables, and its tokens are counted."""
    says = ["Hm. " * 150 + "\nA.", "Well. " * 150 + "\nB.", "Oh. " * 300 + "\nC."]
    agent = core(context_window=WINDOW, prompt=FULL)
    for text in says:
        Playbook([text]).run(agent, "a question")
    world = Playbook(["They asked three things.", "Done."], scene=scene("df", "orders"))
    response = world.run(agent, "the last one")
    assert prompts.COMPACTION_INSTRUCTIONS == world.prompts[0][0].content
    assert "Well." in world.prompts[0][1].content
    (message,) = world.prompts[1][1:]
    assert (
        "[Earlier conversation, summarised]\nThey asked three things.\nVariables in the namespace: df, orders.\n\n"
        "the last one"
    ) == message.content
    assert 200 == response.steps[0].usage.prompt
    assert "summarised" in world.of("compacted")[0]


def test_a_transcript_that_does_not_fit_loses_its_middle() -> None:
    """The call for a summary must itself fit into the window."""
    agent = core(context_window=WINDOW, prompt=FULL)
    Playbook(["start " + "middle " * 3000 + " end"]).run(agent, "first")
    world = Playbook(["Short.", "Done."])
    world.run(agent, "second")
    transcript = world.prompts[0][1].content
    assert ("start" in transcript, "end" in transcript, len(transcript.split()) < WINDOW) == (
        True,
        True,
        True,
    )


def test_without_a_summary_the_oldest_is_dropped() -> None:
    """A model that fails to summarise must not fail the task."""
    agent = core(context_window=WINDOW, prompt=FULL)
    Playbook(["blah " * 700]).run(agent, "first")
    world = Playbook([Says("", fails=ModelUnavailableError("down")), "Done."], scene=scene("df"))
    assert "Done." == world.run(agent, "second").content
    assert (
        "[Earlier conversation dropped to save room. Variables in the namespace: df.]\n\nsecond"
    ) == world.last_prompt


def test_after_three_failures_no_summary_is_asked_for() -> None:
    """The circuit breaker: each failed attempt would be paid for."""
    agent = core(context_window=WINDOW, prompt=FULL)
    Playbook(["blah " * 700]).run(agent, "first")
    for _ in range(MAX_FAILURES):
        world = Playbook(["", "blah " * 700])
        world.run(agent, "next")
        assert 2 == len(world.prompts)
    world = Playbook(["Done."])
    assert "Done." == world.run(agent, "last").content
    assert 1 == len(world.of("compacted"))


def test_the_current_task_survives_everything() -> None:
    """Even when a single output is larger than the limit."""
    world = long_conversation(Playbook(["", *steps(1), "sum", "Done."], [printed("word " * 5000)]))
    assert "the task" in sent(world)
    assert "read_output(1)" in sent(world) or "dropped" in sent(world)


def test_what_can_not_be_shortened_is_tried_once() -> None:
    """A task that fills the window does not announce compaction at each step."""
    world = Playbook([*steps(3), "Done."])
    world.run(core(context_window=WINDOW, max_steps=20), "word " * 900)
    assert 1 == len(world.of("compacting"))
    assert 3 == len(world.executed)


def test_events_have_figures() -> None:
    """How full it was, and the result."""
    world = long_conversation(
        Playbook([*steps(4), "Done."], [printed("word " * 450), *[printed("word " * 90)] * 3])
    )
    (before,) = world.of("compacting")
    (after,) = world.of("compacted")
    assert before.startswith("the conversation has ")
    assert before.endswith(" of 1,000 tokens")
    assert " -> " in after
