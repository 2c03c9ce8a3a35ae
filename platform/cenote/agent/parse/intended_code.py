"""What an answer without a block wants to run: code in a form that is not the one asked for. No I/O.

Models write what their training has shown them: a block without a language, bare code, a call of a tool in JSON or
XML, the tokens of their own chat template. Taken as a final answer it would end a task in which nothing has run.
"""

# ruff: noqa: RUF001  (tokens of DeepSeek's chat template have wide bars)
from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import dedent
from typing import Final

MAX_READ: Final = 200_000
"""Characters of an answer that are looked into. A longer one is prose, or was cut off."""

MAX_CANDIDATES: Final = 50
"""Places of an answer that are tried as JSON."""

_CODE_TOOLS: Final = re.compile(
    r"(?:functions?\.|tools?\.)?(?:i?python\d?|code|repl|jupyter|tool_code|(?:code|python)_?(?:interpreter|exec\w*|"
    r"repl|tool|runner)|(?:run|execute|exec|eval)(?:_?(?:i?python|code|cell|script|block)(?:_code|_script)?)?|interpreter)",
    re.IGNORECASE,
)
_CODE_KEYS: Final = (
    "code",
    "source",
    "script",
    "python",
    "python_code",
    "input",
    "cell",
    "command",
    "content",
    "__arg1",
)
_ARGUMENTS: Final = ("arguments", "parameters", "args", "action_input", "input", "kwargs")
_NAMES: Final = ("name", "tool", "tool_name", "action", "function", "recipient_name")

_END_TOKENS: Final = re.compile(
    r"(?:\s*(?:</s>|<end_code>|<end_action>|<eos>|<end_of_turn>|<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|"
    r"return|call)\|>|<｜end▁of▁sentence｜>))+\s*\Z"
)
_HARMONY: Final = re.compile(
    r"(?:<\|start\|>(?P<role>[^<]{0,200}))?<\|channel\|>(?P<header>(?:[^<]|<\|constrain\|>){0,300})<\|message\|>"
    r"(?P<body>.*?)(?=<\|(?:end|call|return|start|channel)\|>|\Z)",
    re.DOTALL,
)
_RECIPIENT: Final = re.compile(r"to=([\w.]+)")
_CODE_TAG: Final = re.compile(
    r"^[ \t]*<(?P<tag>execute|execute_python|execute_code|execute_ipython|python|ipython|code|tool_code|run|script)>"
    r"(?P<code>.*?)(?:</(?P=tag)>|\Z)",
    re.DOTALL | re.MULTILINE,
)
_PYTHON_TAG: Final = re.compile(r"<\|python_tag\|>(?P<code>.*)\Z", re.DOTALL)
_INVOKE: Final = re.compile(
    r"<(?:\w+:)?(?:invoke|function|tool)(?:=|\s+name=)[\"']?(?P<name>[\w.-]{1,100})[\"']?\s*>(?P<body>.*?)"
    r"(?:</(?:\w+:)?(?:invoke|function|tool)>|\Z)",
    re.DOTALL,
)
_PARAMETER: Final = re.compile(
    r"<(?:\w+:)?(?:parameter|arg|argument)(?:=|\s+name=)[\"']?(?P<name>[\w.-]{1,100})[\"']?\s*>(?P<value>.*?)"
    r"</(?:\w+:)?(?:parameter|arg|argument)>",
    re.DOTALL,
)
_CALL_TOKENS: Final = re.compile(
    r"</?(?:tool_calls?|function_calls?|tool_use|toolcall|start_function_call)>|\[TOOL_CALLS\]|<\|tool_calls?\|>|"
    r"<\|tool_calls?_(?:section_)?begin\|>|<｜tool▁calls?▁begin｜>|<\|action_start\|>"
)
_UNLABELLED: Final = re.compile(
    r"^[ \t]{0,16}(?P<fence>`{3,}|~{3,})[ \t]*(?:code|tool|tool_call|tool_use)?[ \t]*\n(?P<body>.*?)"
    r"(?:^[ \t]{0,16}(?P=fence)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_LONE_FENCE: Final = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*\Z")
_CODE_TAG_END: Final = re.compile(r"\s*</(?:execute\w*|i?python|code|tool_code|run|script)>\s*\Z")
_REACT: Final = re.compile(
    r"^Action:[ \t]*(?P<name>[\w.]{1,100})[ \t]*\n+Action Input:[ \t]*(?P<input>.*?)(?=\n+Observation:|\Z)",
    re.DOTALL | re.MULTILINE,
)
_LANGUAGE_LINE: Final = re.compile(r"\A\s*(?:python3?|py|tool_code)[ \t]*\n", re.IGNORECASE)
_SHELL_LINE: Final = re.compile(r"^([ \t]*)[!%]{1,2}[A-Za-z].*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What an answer wants. code: to run; None for a call that is no code, which can only be asked for again."""

    code: str | None = None


def intent_of(answer: str) -> Intent | None:
    """What an answer without a block wants to run; None for an answer that only says something. Pure."""
    if len(answer) > MAX_READ:
        return None
    text = without_end_tokens(answer)
    for found in (*_harmony(answer), *_tagged(text), *_called(text)):
        return found
    for match in _UNLABELLED.finditer(text):
        body = source_of(match["body"])
        if is_code(body):
            return Intent(code=body)
    bare = source_of(_LONE_FENCE.sub("", _LANGUAGE_LINE.sub("", _CODE_TAG_END.sub("", text))))
    return Intent(code=bare) if is_code(bare) else None


def said_in(answer: str) -> str:
    """The words of an answer, without tokens of a chat template that its server has left in it."""
    final = [
        match["body"] for match in _HARMONY.finditer(answer) if match["header"].strip().startswith("final")
    ]
    return without_end_tokens(final[-1] if final else answer)


def without_end_tokens(text: str) -> str:
    """A text without the tokens by which models end what they write."""
    return _END_TOKENS.sub("", text)


def source_of(code: str) -> str:
    """Code as it can be run: of a session that was written down with its prompts, what was typed in; of a block that
    is indented as a whole, as in a list, without that indent."""
    lines = code.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if not first.lstrip().startswith(">>>"):
        return dedent(code) if first[:1].isspace() else code
    typed = [line.lstrip() for line in lines]
    return "\n".join(line[4:] for line in typed if line.startswith((">>>", "...")))


def is_code(text: str) -> bool:
    """Whether a text is Python that does something: a name, a number or a comparison by itself does nothing.

    Prose that happens to parse is none of it: `Paris (France)`, `Answer: 42`.
    """
    plain = dedent(text).strip("\n")
    plain = _SHELL_LINE.sub(r"\1_()", plain)
    if not plain.strip() or len(plain) > MAX_READ:
        return False
    try:
        body = ast.parse(plain).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(_does_something(statement, plain) for statement in body)


def _does_something(statement: ast.stmt, source: str) -> bool:
    match statement:
        case ast.AnnAssign(value=value):
            return value is not None
        case ast.Expr(value=ast.Await(value=ast.Call() as call)) | ast.Expr(value=ast.Call() as call):
            written = ast.get_source_segment(source, call) or ""
            function = ast.get_source_segment(source, call.func) or ""
            return written.startswith(f"{function}(")
        case ast.Expr() | ast.Pass():
            return any(isinstance(node, ast.NamedExpr) for node in ast.walk(statement))
    return True


def _harmony(answer: str) -> Iterator[Intent]:
    """The tokens of gpt-oss: a message to `python` is code, one to another recipient a call."""
    for match in _HARMONY.finditer(answer):
        recipient = _RECIPIENT.search(f"{match['role'] or ''} {match['header']}")
        if recipient is not None:
            yield _call(recipient[1], _json(match["body"]) or match["body"])


def _tagged(text: str) -> Iterator[Intent]:
    if match := _PYTHON_TAG.search(text):
        yield _call("python", _json(match["code"]) or match["code"])
    for match in _REACT.finditer(text):
        yield _call(match["name"], _json(match["input"]) or match["input"])
    for match in _INVOKE.finditer(text):
        values = {part["name"]: part["value"].strip("\n") for part in _PARAMETER.finditer(match["body"])}
        yield _call(match["name"], values or _json(match["body"]) or match["body"])
    for match in _CODE_TAG.finditer(text):
        if is_code(match["code"]):
            yield Intent(code=match["code"].strip("\n"))


def _called(text: str) -> Iterator[Intent]:
    """Calls in JSON, alone, in tags or tokens of a template, or on a line of their own."""
    starts = [match.start(1) for match in re.finditer(r"(?:^|[>\]`])\s*([{\[])", text, re.MULTILINE)]
    for start in starts[:MAX_CANDIDATES]:
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield from _calls_in(value)
    if _CALL_TOKENS.search(text):
        yield Intent()


def _calls_in(value: object) -> Iterator[Intent]:
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, Mapping):
            continue
        if isinstance(item.get("tool_calls"), list):
            yield from _calls_in(item["tool_calls"])
            continue
        inner = item.get("function")
        if isinstance(inner, Mapping):
            yield from _calls_in(inner)
            continue
        name = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), None)
        given = next((item[key] for key in _ARGUMENTS if key in item), None)
        if name is not None and given is not None:
            yield _call(name, (_json(given) or given) if isinstance(given, str) else given)
        elif set(item) == {"code"} and isinstance(item["code"], str):
            yield Intent(code=item["code"])


def _call(name: str, given: object) -> Intent:
    """A call of a tool: one that runs code is code, any other has to be written as code first."""
    if _CODE_TOOLS.fullmatch(name):
        if isinstance(given, str):
            return Intent(code=given)
        if isinstance(given, Mapping):
            for key in _CODE_KEYS:
                if isinstance(given.get(key), str):
                    return Intent(code=given[key])
    return Intent()


def _json(text: str) -> object:
    """The JSON that a text is, where that is an object; None where it is none."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
