"""Calls of tools in the forms that chat templates have for them: JSON, XML, tokens, literals of Python. No I/O."""

# ruff: noqa: RUF001  (tokens of DeepSeek's chat template have wide bars)
from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from cenote.agent.parse.block_parser import ALIASES
from cenote.agent.parse.source import MAX_READ, is_code

MAX_CANDIDATES: Final = 50
"""Places of an answer that are tried as JSON, and calls of one form."""

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
_LISTS: Final = ("tool_calls", "tool_uses")
_WRAPPERS: Final = (
    "function",
    "function_call",
    "functionCall",
    "tool_call",
    "tool_use",
    "action",
    "executable_code",
    "executableCode",
)
_BESIDE_CODE: Final = frozenset(
    {"code", "language", "thought", "thoughts", "reasoning", "explanation", "description", "plan", "type"}
)
"""Keys of an object that is code with what its writer thought."""

HARMONY: Final = re.compile(
    r"(?:<\|start\|>(?P<role>[^<]{0,200}))?<\|channel\|>(?P<header>(?:[^<]|<\|constrain\|>){0,300})<\|message\|>"
    r"(?P<body>.*?)(?=<\|(?:end|call|return|start|channel)\|>|\Z)",
    re.DOTALL,
)
"""The messages of gpt-oss."""
# Each message is matched by itself, so a search for its end never begins twice. That holds for all patterns below:
# what may not be closed ends with the text.
_RECIPIENT: Final = re.compile(r"to=([\w.]+)")
_BARE_HARMONY: Final = re.compile(
    r"\s*+(?:assistant)?(?:commentary|analysis) to=(?P<name>[\w.]{1,100}) ?(?:code|json)\s*+(?P<body>.*)",
    re.DOTALL,
)
_TOKENS_OF_CODE: Final = re.compile(
    r"(?<![`'\"])(?:<\|python_(?:tag|start)\|>|<\|action_start\|>\s*+<\|interpreter\|>|<jupyter_code>)(?P<code>.*?)"
    r"(?:<\|(?:python_end|action_end|eom_id|eot_id|eot)\|>|<jupyter_output>|\Z)",
    re.DOTALL,
)
_REACT: Final = re.compile(
    r"^(?:\*\*)?Action:(?:\*\*)?[ \t]*+(?P<name>[\w.]{1,100})[ \t]*+\n++(?:\*\*)?Action Input:(?:\*\*)?[ \t]*+"
    r"(?P<body>.*?)(?=\n(?:\*\*)?Observation:|\Z)",
    re.DOTALL | re.MULTILINE,
)
_NAMED: Final = re.compile(
    r"(?:<tool_call>|\[TOOL_CALLS\]|<｜tool▁call▁begin｜>|<｜tool▁sep｜>|<\|tool_call_begin\|>)\s*+"
    r"(?P<name>[\w.-]{1,100})(?::\d{1,9})?\s*+(?:\[CALL_ID\]\w{1,100})?"
    r"(?:\[ARGS\]|<｜tool▁sep｜>|<\|tool_call_argument_begin\|>)?\s*+(?:```\w{0,20}\s*+)?(?=\{)"
)
_KEYED: Final = re.compile(
    r"<tool_call>\s*+(?P<name>[\w.-]{1,100})\s*+(?=<arg_key>)(?P<body>.*?)(?:</tool_call>|\Z)", re.DOTALL
)
_KEY: Final = re.compile(
    r"<arg_key>(?P<name>[^<]{1,100})</arg_key>\s*+<arg_value>(?P<value>.*?)(?:</arg_value>|\Z)", re.DOTALL
)
_INVOKE: Final = re.compile(
    r"<(?:\w++:|｜DSML｜)?(?:invoke|function|tool)(?:=|\s++name=)[\"']?(?P<name>[\w.-]{1,100})[\"']?(?:\s[^<>]{0,200})?>"
    r"(?P<body>.*?)(?:</(?:\w++:|｜DSML｜)?(?:invoke|function|tool)>|\Z)",
    re.DOTALL,
)
_PARAMETER: Final = re.compile(
    r"<(?:\w++:|｜DSML｜)?(?:parameter|arg|argument)(?:=|\s++name=)[\"']?(?P<name>[\w.-]{1,100})[\"']?(?:\s[^<>]{0,200})?>"
    r"(?P<value>.*?)(?:</(?:\w++:|｜DSML｜)?(?:parameter|arg|argument)>|\Z)",
    re.DOTALL,
)
_GEMMA: Final = re.compile(
    r"<start_function_call>\s*+call:(?P<name>[\w.]{1,100})\{(?P<body>.*?)(?:<end_function_call>|\Z)",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\b(?P<name>\w{1,100}):<escape>(?P<value>.*?)(?:<escape>|\Z)", re.DOTALL)
_IN_ELEMENTS: Final = re.compile(
    r"<(?:tool_)?name>\s*+(?P<name>[\w.-]{1,100})\s*+</(?:tool_)?name>\s*+<(?P<tag>arguments|parameters|args|input)>"
    r"(?P<body>.*?)(?:</(?P=tag)>|\Z)",
    re.DOTALL,
)
_CODE_ELEMENT: Final = re.compile(r"<code>(?P<value>.*?)(?:</code>|\Z)", re.DOTALL)
_CDATA: Final = re.compile(r"<!\[CDATA\[(?P<value>.*?)(?:\]\]>|\Z)", re.DOTALL)
_FENCED: Final = re.compile(r"\s*+```\w{0,20}[ \t]*+\n(?P<code>.*?)\n?```\s*+", re.DOTALL)

_CALL_TOKENS: Final = re.compile(
    r"(?<![`'\"])(?:</?(?:tool_calls?|function_calls?|tool_use|toolcall|start_function_call)>|\[TOOL_CALLS\]|"
    r"<\|tool_calls?\|>|<\|tool_calls?_(?:section_)?(?:begin|start|end)\|>|<｜tool▁calls?▁begin｜>|<\|action_start\|>|"
    r"<｜DSML｜function_calls>)"
)
_JSON_START: Final = re.compile(
    r"(?:^[ \t]*+(?:`{1,3}+(?:json)?+[ \t]*+)?|[>\]][ \t]*+|^functools)(?=[{\[])", re.MULTILINE
)
_JSON_BEHIND_WORDS: Final = re.compile(r"[:.!][ \t]++(?=\{)")
_LITERAL_START: Final = re.compile(r"[{\[]\s*+[{\[]?\s*+['\"]")
_LITERAL_TOKEN: Final = re.compile(
    r"'''(?:\\.|[^\\])*?(?:'''|\Z)|\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z)|"
    r"'(?:\\.|[^'\\\n])*+(?:'|\n|\Z|\\)|\"(?:\\.|[^\"\\\n])*+(?:\"|\n|\Z|\\)|[{}\[\]]",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What an answer wants. code: to run; None for a call that is no code, which can only be asked for again."""

    code: str | None = None


def marked_calls(text: str) -> Iterator[Intent]:
    """Those that tokens or tags of a chat template name. Lazy: the first one is what an answer wants."""
    return chain(_in_tokens(text), _in_elements(text))


def bare_calls(text: str) -> Iterator[Intent]:
    """Those that are JSON or Python, in whatever stands around them."""
    return chain(_in_json(text), _in_python(text))


def calls_in_messages(text: str) -> Iterator[Intent]:
    """The messages of gpt-oss: one to `python` is code, one to another recipient a call."""
    for match in HARMONY.finditer(text):
        recipient = _RECIPIENT.search(f"{match['role'] or ''} {match['header']}")
        if recipient is not None:
            yield _call(recipient[1], _given(match["body"]))
    if bare := _BARE_HARMONY.match(text):  # its server has left the tokens out
        given = _given(bare["body"])
        if isinstance(given, Mapping) or is_code(bare["body"]):
            yield _call(bare["name"], given)


def _in_tokens(text: str) -> Iterator[Intent]:
    for match in _TOKENS_OF_CODE.finditer(text):
        given = _given(match["code"])
        yield (
            _python_call(given.strip()) or Intent(code=given)
            if isinstance(given, str)
            else _call("python", given)
        )
    for match in _REACT.finditer(text):
        yield _call(match["name"], _given(match["body"].strip("\n")))
    for match in islice(_NAMED.finditer(text), MAX_CANDIDATES):
        value, _ = _value_at(text, match.end())
        if value is not None:
            yield _call(match["name"], value)
    for match in _GEMMA.finditer(text):
        yield _call(match["name"], _values(_ESCAPED, match["body"]) or match["body"])


def _in_elements(text: str) -> Iterator[Intent]:
    for match in _KEYED.finditer(text):
        yield _call(match["name"], _values(_KEY, match["body"]))
    for match in _INVOKE.finditer(text):
        yield _call(match["name"], _values(_PARAMETER, match["body"]) or _given(match["body"]))
    for match in _IN_ELEMENTS.finditer(text):
        yield _call(match["name"], _given(_without(_CODE_ELEMENT, match["body"])))


def _values(pattern: re.Pattern[str], body: str) -> dict[str, str]:
    """Arguments by name."""
    return {part["name"]: _without(_CDATA, part["value"]).strip("\n") for part in pattern.finditer(body)}


def _without(element: re.Pattern[str], text: str) -> str:
    found = element.fullmatch(text.strip())
    return found["value"] if found else text


def _in_json(text: str) -> Iterator[Intent]:
    """Calls in JSON or in a literal of Python: alone, in tags or tokens of a template, on a line of their own; or
    behind words, where the call of a tool that runs code ends the answer."""
    spent = 0
    for match in islice(_JSON_START.finditer(text), MAX_CANDIDATES):
        value, read = _value_at(text, match.end())
        yield from _of_value(value)
        spent += read
        if spent > 2 * MAX_READ:
            break
    end = len(text.rstrip())
    for match in islice(_JSON_BEHIND_WORDS.finditer(text), MAX_CANDIDATES):
        value, read = _value_at(text, match.end())
        if value is not None and match.end() + read == end:
            yield from (intent for intent in _of_value(value) if intent.code and is_code(intent.code))
        spent += read
        if spent > 2 * MAX_READ:
            break


def _in_python(text: str) -> Iterator[Intent]:
    """Calls that are written as Python, such as `[python(code="x = 1")]`; and tokens of which nothing can be read."""
    plain = _CALL_TOKENS.sub("", text)
    has_tokens = len(plain) < len(text)
    if (has_tokens or plain.lstrip().startswith("[")) and (found := _python_call(plain.strip())):
        yield found
    if has_tokens:
        yield Intent()


def _python_call(text: str) -> Intent | None:
    """A call of a tool that runs code, with its arguments by name; or a list of calls of any tools."""
    if len(text) > MAX_READ:
        return None
    try:
        value = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    listed = isinstance(value, ast.List)
    calls = value.elts if isinstance(value, ast.List) else [value]
    for call in calls[:1]:
        if isinstance(call, ast.Call) and not call.args and call.keywords:
            name = ast.unparse(call.func).removesuffix(".call")
            given = {
                each.arg: each.value.value for each in call.keywords if isinstance(each.value, ast.Constant)
            }
            if _CODE_TOOLS.fullmatch(name):
                return _call(name, given)
            return Intent() if listed else None
    return None


def _of_value(value: object) -> Iterator[Intent]:
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, Mapping):
            continue
        listed = next((item[key] for key in _LISTS if isinstance(item.get(key), list)), None)
        inner = next((item[key] for key in _WRAPPERS if isinstance(item.get(key), Mapping)), None)
        if listed is not None or inner is not None:
            yield from _of_value(inner if listed is None else listed)
            continue
        name = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), None)
        given = next((item[key] for key in _ARGUMENTS if key in item), None)
        if name is not None and given is not None:
            yield _call(name, _given(given) if isinstance(given, str) else given)
        elif isinstance(item.get("code"), str) and _is_code_alone(item, name):
            yield Intent(code=item["code"])


def _is_code_alone(item: Mapping[str, object], name: str | None) -> bool:
    """Whether an object is code, with at most a word on it."""
    if set(item) == {"code"} or (name is not None and _CODE_TOOLS.fullmatch(name)):
        return True
    language = str(item.get("language", "python")).lower()
    return (
        name is None and _BESIDE_CODE.issuperset(item) and language in ALIASES and is_code(str(item["code"]))
    )


def _call(name: str, given: object) -> Intent:
    """A call of a tool: one that runs code is code, any other has to be written as code first."""
    if _CODE_TOOLS.fullmatch(name):
        if isinstance(given, str):
            return Intent(code=_unfenced(given))
        if isinstance(given, Mapping):
            for key in _CODE_KEYS:
                if isinstance(given.get(key), str):
                    return Intent(code=_unfenced(given[key]))
            return next(_of_value(given), Intent())
    return Intent()


def _unfenced(code: str) -> str:
    found = _FENCED.fullmatch(code)
    return found["code"] if found else code


def _given(text: str) -> Mapping[str, object] | str:
    """The object that a text is, or the text."""
    start = text.lstrip()
    if not start.startswith("{"):
        return text
    value, read = _value_at(start, 0)
    return value if isinstance(value, dict) and not start[read:].strip() else text


def _value_at(text: str, start: int) -> tuple[object, int]:
    """What a text has there in JSON or as a literal of Python, None where it has neither; and how much was read."""
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    else:
        return value, end - start
    if _LITERAL_START.match(text, start) is None:
        return None, 0
    depth, end = 0, len(text)
    for token in _LITERAL_TOKEN.finditer(text, start):
        depth += (token[0] in "{[") - (token[0] in "}]")
        if depth == 0:
            end = token.end()
            break
    try:
        return (ast.literal_eval(text[start:end]) if depth == 0 else None), end - start
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None, end - start
