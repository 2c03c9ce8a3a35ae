"""What an answer means, whatever form its model has learnt: code to run, or words for the user.

The forms are those of chat templates and of parsers that serving libraries have for them.
"""

# ruff: noqa: RUF001  (tokens of DeepSeek's chat template have wide bars; a fence may have wide backticks)
from __future__ import annotations

import json

import pytest
from tests.support.agent.playbook import Playbook, Says, core

from cenote.agent.vocabulary.response import ExecutionStatus

F = "```"
CODE = "x = 42"
CALL = json.dumps({"name": "python", "arguments": {"code": CODE}})
LITERAL = "{'name': 'python', 'arguments': {'code': 'x = 42', 'reset': False, 'limit': None}}"
ARGS = json.dumps({"code": CODE})
THOUGHT = "<|channel|>analysis<|message|>Let me compute.<|end|>"

RUN = {
    # Calls as literals of Python, and as other JSON.
    "literal": LITERAL,
    "literal on a line": f"I run it.\n{LITERAL}",
    "literal in a list": f"[{LITERAL}]",
    "literal in tags": f"<tool_call>\n{LITERAL}\n</tool_call>",
    "literal in a fence": f"{F}json\n{LITERAL}\n{F}",
    "literal with a trailing comma": '{"name": "python", "arguments": {"code": "x = 42",},}',
    "literal with three quotes": '{"name": "python", "arguments": {"code": """x = 42"""}}',
    "literal after words": f"I will run this: {LITERAL}",
    "call after words": f"I will run this: {CALL}",
    "call after a sentence": f"Let me compute it. {CALL}</s>",
    "call after a list of words in brackets": f"First [see {{note}}] then: {CALL}",
    "thought and code": '{"thought": "I compute.", "code": "x = 42"}',
    "language and code": '{"language": "python", "code": "x = 42"}',
    "call with its code beside the name": '{"tool": "python", "code": "x = 42"}',
    "old call of OpenAI": json.dumps({"function_call": {"name": "python", "arguments": ARGS}}),
    "parallel calls": json.dumps(
        {"tool_uses": [{"recipient_name": "functions.python", "parameters": {"code": CODE}}]}
    ),
    "functions of Gemini": json.dumps({"functionCall": {"name": "python", "args": {"code": CODE}}}),
    "code of Gemini": json.dumps({"executableCode": {"language": "PYTHON", "code": CODE}}),
    # Headers, prompts and unusual fences.
    "arrows and a language": ">>>python\nx = 42",
    "arrows, a language, and their end": ">>> python\nx = 42\n>>>",
    "prompt": ">>> x = 42",
    "prompt without a blank": ">>>x = 42",
    "prompts with an output": ">>> x = 42\n42",
    "prompts of IPython": "In [1]: x = 42",
    "prompts of IPython in a fence": f"{F}python\nIn [1]: x = 42\nOut[1]: 42\n{F}",
    "two backticks": "``python\nx = 42\n``",
    "two backticks after words": "Let me see.\n\n``py\nx = 42\n``",
    "quotes as a fence": "'''python\nx = 42\n'''",
    "double quotes as a fence": '"""python\nx = 42\n"""',
    "wide backticks": "｀｀｀python\nx = 42\n｀｀｀",
    "acute accents": "´´´python\nx = 42\n´´´",
    "wide backticks, unclosed": "Let me see.\n｀｀｀python\nx = 42",
    "block on one line": f"{F}python x = 42{F}",
    "unclosed": f"{F}python\nx = 42",
    "unclosed without a language": f"{F}\nx = 42",
    "py": f"{F}py\nx = 42\n{F}",
    "python3": f"{F}python3\nx = 42\n{F}",
    "ipython": f"{F}ipython\nx = 42\n{F}",
    "attributes of Pandoc": f"{F} {{.python}}\nx = 42\n{F}",
    "attributes with an id": f"{F}{{#first .python .numberLines}}\nx = 42\n{F}",
    "attributes of MyST": f"{F}{{code-cell}} python\nx = 42\n{F}",
    "class of a web page": f"{F}language-python\nx = 42\n{F}",
    "title": f'{F}python title="a.py" linenums="1"\nx = 42\n{F}',
    "in a list": f"1. Compute:\n\n    {F}python\n    x = 42\n    {F}",
    "behind a list's mark": f"- {F}python\n  x = 42\n  {F}",
    "line ends of Windows": f"{F}python\r\nx = 42\r\n{F}\r\n",
    "line ends of Windows without a language": f"Look:\r\n{F}\r\nx = 42\r\n{F}\r\n",
    "line ends of Windows in a tag": "<execute>\r\nx = 42\r\n</execute>\r\n",
    "byte order mark": f"\ufeff{F}python\nx = 42\n{F}",
    "byte order mark without a language": f"\ufeff{F}\nx = 42\n{F}",
    "byte order mark and bare code": "\ufeffx = 42",
    # Tags.
    "code tag": "<code>\nx = 42\n</code>",
    "code tag with a language": '<code language="python">\nx = 42\n</code>',
    "execute tag": "<execute>\nx = 42\n</execute>",
    "execute tag of OpenHands": "<execute_ipython>\nx = 42\n</execute_ipython>",
    "tool_code tag": "<tool_code>\nx = 42\n</tool_code>",
    "unclosed tag": "<tool_code>\nx = 42",
    "tag of Code Llama": "[PYTHON]\nx = 42\n[/PYTHON]",
    "tag of Code Llama, unclosed": "Let me see.\n[PYTHON]\nx = 42",
    "fence in a tag": f"<execute>\n{F}python\nx = 42\n{F}\n</execute>",
    "fence without a language in a tag": f"<tool_code>\n{F}\nx = 42\n{F}\n</tool_code>",
    "names and arguments in XML": "<tool_use><name>python</name><arguments>"
    + ARGS
    + "</arguments></tool_use>",
    "CDATA": '<invoke name="python"><parameter name="code"><![CDATA[x = 42]]></parameter></invoke>',
    "unclosed parameter": "<function=python>\n<parameter=code>\nx = 42\n",
    # Tokens of chat templates.
    "GLM 4.5": "<tool_call>python\n<arg_key>code</arg_key>\n<arg_value>x = 42</arg_value>\n</tool_call>",
    "GLM 4.5, unclosed": "I compute.\n<tool_call>python\n<arg_key>code</arg_key>\n<arg_value>x = 42",
    "GLM 4": f"<tool_call>python\n{ARGS}\n</tool_call>",
    "gpt-oss": f"{THOUGHT}<|start|>assistant<|channel|>commentary to=python code<|message|>x = 42<|call|>",
    "gpt-oss, a function": "<|channel|>commentary to=functions.python <|constrain|>json<|message|>"
    + ARGS
    + "<|call|>",
    "gpt-oss, in its analysis": "<|channel|>analysis to=python code<|message|>x = 42<|call|>",
    "gpt-oss, a call in JSON": f"<|channel|>commentary to=python<|message|>{CALL}<|call|>",
    "gpt-oss, tokens left out": f"commentary to=functions.python json{ARGS}",
    "Llama 3, code": "<|python_tag|>x = 42<|eom_id|>",
    "Llama 3, a call": '<|python_tag|>{"name": "python", "parameters": {"code": "x = 42"}}<|eom_id|>',
    "Llama 3, a built-in call": '<|python_tag|>code_interpreter.call(code="x = 42")<|eom_id|>',
    "Llama 3, a function": f"<function=python>{ARGS}</function><|eot_id|>",
    "Llama 4": "<|python_start|>x = 42<|python_end|><|eot|>",
    "Llama 4, pythonic": '[python(code="x = 42")]',
    "LFM 2": '<|tool_call_start|>[python(code="x = 42")]<|tool_call_end|>',
    "Olmo 3": '<function_calls>\npython(code="x = 42")\n</function_calls>',
    "Mistral": f"[TOOL_CALLS] [{CALL}]",
    "Mistral 2025": f"[TOOL_CALLS]python{ARGS}</s>",
    "Mistral with arguments": f"[TOOL_CALLS]python[ARGS]{ARGS}</s>",
    "Mistral with an id": f"[TOOL_CALLS]python[CALL_ID]a1b2c3d4e[ARGS]{ARGS}</s>",
    "DeepSeek V3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>python\n"
    f"{F}json\n{ARGS}\n{F}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "DeepSeek V3.1": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>python<｜tool▁sep｜>{ARGS}<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    "DeepSeek V3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="python">\n'
    '<｜DSML｜parameter name="code" string="true">'
    "x = 42</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "Kimi K2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.python:0<|tool_call_argument_begin|>"
    f"{ARGS}<|tool_call_end|><|tool_calls_section_end|>",
    "Hermes": f"<tool_call>\n{CALL}\n</tool_call><|im_end|>",
    "Qwen coder": "<tool_call>\n<function=python>\n<parameter=code>\nx = 42\n</parameter>\n</function>\n</tool_call>",
    "MiniMax": '<minimax:tool_call>\n<invoke name="python">\n<parameter name="code">x = 42</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "Phi 4": f"functools[{CALL}]",
    "Granite": f"<|tool_call|>[{CALL}]",
    "Nemotron": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "Command R": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "python", "parameters": {"code": "x = 42"}}]'
    "<|END_ACTION|>",
    "InternLM": "<|action_start|><|interpreter|>\nx = 42<|action_end|>",
    "Gemma": "<start_function_call>call:python{code:<escape>x = 42<escape>}<end_function_call>",
    "ReAct": "Thought: compute.\nAction: python_repl\nAction Input: x = 42\n\nObservation: it is set",
    "ReAct in bold": "**Thought:** compute.\n**Action:** python_repl\n**Action Input:** x = 42",
    "StarCoder": "<jupyter_code>x = 42<jupyter_output>",
}

SIZES = [1, 5, 10_000]
"""Characters of a piece, for each form."""


@pytest.mark.parametrize("answer", RUN.values(), ids=RUN)
def test_code_in_any_form_runs(answer: str) -> None:
    """The code as it was meant, once, and nothing else; for every chunking."""
    for size in SIZES:
        world = Playbook([Says(answer, size=size), "It is set."])
        response = world.run(core())
        ran = [code.strip() for code in world.executed]
        assert ([CODE], "It is set.") == (ran, response.content), size


WORDS = {
    "another language": f"Put this in your page:\n\n{F}js\nconst x = f(1);\n{F}",
    "shell": f"Then install it:\n{F}bash\npip install cenote\n{F}\nThat is all.",
    "SQL and words": f"{F}sql\nSELECT 1\n{F}\nthen\n{F}sql\nSELECT 2\n{F}",
    "between two blocks": f"{F}js\nf(1)\n{F}\nprint(1)\n{F}js\nf(2)\n{F}",
    "Ruby that is Python as well": f"In Ruby:\n{F}ruby\nx = 42\n{F}",
    "a block in a block": f"Write this into the file:\n\n````markdown\n# Use\n\n{F}\nf(1)\n{F}\n````",
    "a block in a block in tildes": f"~~~text\n{F}\nx = 42\n{F}\n~~~",
    "a block of Python in a block": f"````markdown\n{F}python\nx = 42\n{F}\n````",
    "a script in a web page": f"{F}html\n<html>\n<script>\nx = 42\n</script>\n</html>\n{F}",
    "a tag in a text block": f"The format is:\n{F}text\n<execute>\nx = 42\n</execute>\n{F}",
    "a call in a text block": f"The format is:\n{F}text\n{CALL}\n{F}",
    "a call in a YAML block": f"{F}yaml\nexample:\n{CALL}\n{F}",
    "a call in backticks": f"Send `{CALL}` to the server.",
    "a call that words follow": f"The server got {CALL} and answered 200.",
    "a call of another tool in words": 'The API takes {"name": "get_order", "arguments": {"id": 7}}',
    "a dictionary": "{'total': 42, 'items': [1, 2], 'paid': True, 'note': None}",
    "a record": "{'name': 'Ann', 'age': 7}",
    "a record with code": '{"country": "France", "code": "FR"}',
    "code in another language": '{"language": "javascript", "code": "x = 42"}',
    "a list": "[1, 2, 3]",
    "a list of calls in words": "It returns [f(1), g(2)].",
    "inline code": "Use ``f(1)`` or `g(2)` for that.",
    "two backticks in a line": "Write ``python`` behind the fence.",
    "two backticks without a language": "``\nx = 42\n``",
    "quotes": "'''\nx = 42\n'''",
    "quotes and words": "He said '''python is great'''.",
    "quotes as a fence in another language": "'''js\nx = 42\n'''",
    "wide backticks in another language": "｀｀｀sql\nSELECT 1\n｀｀｀",
    "a web page's code": "The function <code>f(1)</code> does that.",
    "code tag with another language": '<code language="javascript">\nx = 42\n</code>',
    "markers in words": "Code Llama writes [PYTHON] before code and [/PYTHON] after it.",
    "markers with dots": "[PYTHON]...[/PYTHON] is how Code Llama marks code.",
    "prompts in words": "You would see:\n\n>>> f(1)\n2",
    "arrows in words": ">>>python is a language",
    "an example for the reader": "Call `add(1, 2)`; it gives 3.\n\n    add(1, 2)",
    "a console": f"{F}console\n$ python -c 'x = 42'\n{F}",
    "a difference": f"{F}diff\n-x = 41\n+x = 42\n{F}",
    "one line in another language": f"{F}js x = 42{F}",
    "one line in a sentence": f"Write {F}python x = 42{F} there.",
    "tokens spoken of": "The token `<|python_tag|>` begins code.",
    "a recipient spoken of": "gpt-oss writes commentary to=python code before it.",
    "line ends of Windows": f"Look:\r\n{F}js\r\nx = 42\r\n{F}",
}


@pytest.mark.parametrize("answer", WORDS.values(), ids=WORDS)
def test_an_example_for_the_reader_is_never_run(answer: str) -> None:
    """A final answer, word for word, for every chunking."""
    for size in SIZES:
        world = Playbook([Says(answer, size=size)])
        response = world.run(core())
        assert ([], ExecutionStatus.SUCCESS) == (world.executed, response.status), size
        assert answer == response.content, size


SAID = {
    "gpt-oss": (f"{THOUGHT}<|start|>assistant<|channel|>final<|message|>It is 42.<|return|>", "It is 42."),
    "gpt-oss, an example": (
        f"{THOUGHT}<|start|>assistant<|channel|>final<|message|>Write:\n{F}js\nx = 42\n{F}<|return|>",
        f"Write:\n{F}js\nx = 42\n{F}",
    ),
    "thinking": (f"<think>\n{F}python\nx = 1\n{F}\n</think>\nIt is 42.", "It is 42."),
    "thinking, without a language": (f"<think>\n{F}\nx = 1\n{F}\n</think>\nIt is 42.", "It is 42."),
    "thinking with a call": (f"<think>\n{CALL}\n</think>\n\nIt is 42.", "It is 42."),
    "thinking with a tag": ("<thinking><execute>\nx = 1\n</execute></thinking>It is 42.", "It is 42."),
    "thinking behind a mark": (f"\ufeff<think>\n{F}python\nx = 1\n{F}\n</think>\nIt is 42.", "It is 42."),
    "thinking behind words": (f"Well. <think>\n{F}python\nx = 1\n{F}\n</think>\nIt is 42.", "It is 42."),
    "thinking without its beginning": (f"{F}python\nx = 1\n{F}\n</think>\nIt is 42.", "It is 42."),
    "end tokens": ("It is 42.<|im_end|>\n<|endoftext|>", "It is 42."),
}


@pytest.mark.parametrize(("answer", "said"), SAID.values(), ids=SAID)
def test_what_surrounds_an_answer_is_no_part_of_it(answer: str, said: str) -> None:
    """Neither shown nor run."""
    for size in SIZES:
        world = Playbook([Says(answer, size=size)])
        response = world.run(core())
        assert ([], said) == (world.executed, response.content.strip()), size
