"""Code in a form other than the requested one is never a final answer."""

from __future__ import annotations

import pytest
from tests.support.agent.playbook import Playbook, Says, block, core

from cenote.agent.parse.intended_code import intent_of, said_in
from cenote.agent.parse.tool_calls import Intent
from cenote.agent.prompt.system_prompt import PromptParts
from cenote.agent.vocabulary.response import ExecutionStatus, StopReason

FENCE = "```"
TOOL_JSON = '{"name": "python", "arguments": {"code": "x = 42"}}'

RUN = [
    f"{FENCE}\nx = 42\n{FENCE}",
    f"Let me see.\n\n{FENCE}\nx = 42\n{FENCE}\nThat is it.",
    f"{FENCE}code\nx = 42\n{FENCE}",
    *(
        f"{FENCE}{name}\nx = 42\n{FENCE}"
        for name in ["python3", "py", "tool_code", "repl", "ipython", "Python", "PYTHON"]
    ),
    f"{FENCE}pycon\n>>> x = 42\n{FENCE}",
    f"{FENCE}python\n>>> x = 42\n{FENCE}",
    f"{FENCE}python\nx = 42\n{FENCE}</s>",
    f"{FENCE}python\nx = 42\n{FENCE} <end_code>",
    f"{FENCE}python\nx = 42\n{FENCE} and done",
    f"{FENCE}python\nx = 42{FENCE}",
    f"{FENCE}python\nx = 42{FENCE}<end_code>",
    f"x = 42\n{FENCE}",
    f"python\nx = 42\n{FENCE}",
    "x = 42",
    "x = 42</s>",
    "x = 42<|im_end|>",
    ">>> x = 42",
    TOOL_JSON,
    f"I will run it.\n{TOOL_JSON}",
    f"{FENCE}json\n{TOOL_JSON}\n{FENCE}",
    f"<tool_call>\n{TOOL_JSON}\n</tool_call>",
    f"<tool_call>\n{TOOL_JSON}",
    f"[TOOL_CALLS][{TOOL_JSON}]",
    '{"name": "code_interpreter", "parameters": {"code": "x = 42"}}',
    '{"action": "python_repl", "action_input": "x = 42"}',
    '{"type": "function", "function": {"name": "execute_python", "arguments": "{\\"code\\": \\"x = 42\\"}"}}',
    '{"tool_calls": [{"function": {"name": "python", "arguments": {"code": "x = 42"}}}]}',
    "<function=python><parameter=code>\nx = 42\n</parameter></function>",
    '<invoke name="run_code"><parameter name="code">x = 42</parameter></invoke>',
    "<execute>\nx = 42\n</execute>",
    "Thought: compute.\n<code>\nx = 42\n</code>",
    "<|python_tag|>x = 42",
    "x = 42\n</code>",
    "Thought: I compute.\nAction: python_repl\nAction Input: x = 42\nObservation: it is set",
    "~~~\nx = 42\n~~~",
    "<|channel|>commentary to=python code<|message|>x = 42<|call|>",
    "<|channel|>analysis<|message|>Let me compute.<|end|><|start|>assistant<|channel|>commentary to=python code"
    "<|message|>x = 42<|call|>",
    "<|start|>assistant to=python<|channel|>commentary<|message|>x = 42<|call|>",
]


@pytest.mark.parametrize("answer", RUN)
def test_code_in_another_form_runs(answer: str) -> None:
    """The code unchanged, and nothing else."""
    world = Playbook([answer, "It is set."])
    response = world.run(core())
    assert (["x = 42"], "It is set.") == (
        [code.strip() for code in world.executed],
        response.content,
    )
    assert ["x = 42"] == [code.strip() for code in world.of("code")]


ASKED_AGAIN = [
    '{"name": "get_order", "arguments": {"id": 7}}',
    '<tool_call>\n{"name": "get_order", "arguments": {"id": 7}}\n</tool_call>',
    "<tool_call>\n{'name': broken",
    '<|channel|>commentary to=functions.get_order <|constrain|>json<|message|>{"id": 7}<|call|>',
    "<function=get_order><parameter=id>7</parameter></function>",
    'Action: get_order\nAction Input: {"id": 7}',
    '{"name": "run_report", "arguments": {"content": "x = 42"}}',
]


@pytest.mark.parametrize("answer", ASKED_AGAIN)
def test_a_call_of_a_tool_is_asked_for_again_as_code(answer: str) -> None:
    """The model gets instructions; the partial pieces are not stored."""
    world = Playbook([answer, block("get_order(7)"), "Done."])
    response = world.run(core())
    assert (["get_order(7)"], ExecutionStatus.SUCCESS) == (world.executed, response.status)
    assert "Nothing was run" in world.prompts[1][-1].content
    assert answer not in [message.content for message in world.prompts[2]]


def test_calls_of_tools_again_and_again_are_no_answer() -> None:
    """For a model that only writes tool calls."""
    response = Playbook([ASKED_AGAIN[0]] * 3).run(core())
    assert (ExecutionStatus.INCOMPLETE, StopReason.INCOMPLETE) == (response.status, response.stop_reason)


WORDS = [
    "It is 42.",
    "42",
    "Done",
    "Paris (France)",
    "Answer: 42",
    "Name: Ann\nCity: Paris",
    "a == b",
    "x, y",
    '{"total": 42, "items": [1, 2]}',
    '{"name": "Ann", "age": 7}',
    f"The log says:\n{FENCE}\nerror 7 in line 3\n{FENCE}",
    f"As a text:\n{FENCE}text\nf(1)\n{FENCE}",
    f"Data:\n{FENCE}json\n{{}}\n{FENCE}",
    "Call `f(x)` to begin.",
    "Use <b>f</b>.",
    "pass",
]


@pytest.mark.parametrize("answer", WORDS)
def test_words_are_an_answer(answer: str) -> None:
    """Also words that happen to be valid Python or JSON."""
    assert intent_of(answer) is None
    response = Playbook([answer]).run(core())
    assert (ExecutionStatus.SUCCESS, answer) == (response.status, response.content)


def test_tokens_of_a_template_are_no_part_of_an_answer() -> None:
    """Its server has left them in the text."""
    thought = "<|channel|>analysis<|message|>Easy.<|end|>"
    harmony = f"{thought}<|start|>assistant<|channel|>final<|message|>It is 42.<|return|>"
    assert "It is 42." == Playbook([harmony]).run(core()).content
    assert "It is 42." == said_in("It is 42.</s>")


REASONING = [
    f"<think>\n{FENCE}python\nx = 1\n{FENCE}\n</think>\nFour.",
    f"<thought>{FENCE}python\nx = 1\n{FENCE}</thought>Four.",
    f"<reasoning>\n{FENCE}python\nx = 1\n{FENCE}\n</reasoning>\nFour.",
    f"[THINK]\n{FENCE}python\nx = 1\n{FENCE}\n[/THINK]\nFour.",
    f"I try\n{FENCE}python\nx = 1\n{FENCE}\n</think>\nFour.",
    f"I try\n{FENCE}python\nx = 1\n{FENCE}\nor\n{FENCE}python\ny = 1\n{FENCE}</thinking>Four.",
    f"I try\n{FENCE}python\nx = 1\n</think>\nFour.",
    f"<|channel|>analysis<|message|>{FENCE}python\nx = 1\n{FENCE}<|end|>Four.",
    f"<seed:think>\n{FENCE}python\nx = 1\n{FENCE}\n</seed:think>\nFour.",
]


@pytest.mark.parametrize("answer", REASONING)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_reasoning_is_never_run(answer: str, size: int) -> None:
    """With or without its opening tag, for every chunking."""
    world = Playbook([Says(answer, size=size)])
    response = world.run(core())
    assert ([], "Four.") == (world.executed, response.content)
    assert "x = 1" in "".join(world.of("thinking"))


def test_a_tag_that_is_spoken_of_ends_nothing() -> None:
    """In quotes, and in code."""
    quoted = "Models end it with `</think>`, then answer."
    assert quoted == Playbook([quoted]).run(core()).content
    world = Playbook([block("a, b = text.split('</think>')"), "Done."])
    world.run(core())
    assert ["a, b = text.split('</think>')"] == world.executed


def test_a_language_of_the_users_own_takes_no_other_form() -> None:
    """Python code is not the requested block language."""
    assert Intent(code="x = 42") == intent_of("x = 42")
    world = Playbook(["x = 42", "```sql\nSELECT 1\n```", "Done."])
    world.run(core(prompt=PromptParts(python_block_identifier="sql")))
    assert ["SELECT 1"] == world.executed
