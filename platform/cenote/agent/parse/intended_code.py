"""What an answer without a block wants to run: code in a form that is not the one asked for. No I/O.

Models write what their training has shown them: a block without a language, bare code, a call of a tool in JSON or
XML, the tokens of their own chat template. Taken as a final answer it would end a task in which nothing has run.
An example for the reader is none of it, so blocks in other languages are left out before anything is looked for.
"""

# ruff: noqa: RUF001  (tokens of DeepSeek's chat template have wide bars; a fence may have wide backticks)
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from cenote.agent.parse.block_parser import ALIASES
from cenote.agent.parse.source import MAX_READ, is_code, source_of
from cenote.agent.parse.tool_calls import HARMONY, Intent, bare_calls, calls_in_messages, marked_calls

_END_TOKENS: Final = (
    "</s>",
    "<end_code>",
    "<end_action>",
    "<eos>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    *(
        f"<|{name}|>"
        for name in ("im_end", "eot_id", "eot", "eom_id", "end", "endoftext", "end_of_text", "return", "call")
    ),
)
_ALIAS: Final = "|".join(sorted(map(re.escape, ALIASES), reverse=True))
_UNSEEN: Final = "\ufeff\u200b"
"""Marks of byte order and of places to break, which some models and editors begin a text with."""

_FENCE_LINE: Final = re.compile(r"[ \t]{0,16}(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<info>.*)")
_LANGUAGE: Final = re.compile(r"[\s{.]*+([\w+-]+)")
_EXAMPLE: Final = "(an example)"
_NO_LANGUAGE: Final = frozenset({"", "code", "tool", "tool_call", "tool_use"})
_OF_CALLS: Final = frozenset(
    {"json", "json5", "jsonc", "xml", "tool_calls", "function_call", "function_calls"}
)
"""Languages in which models write calls of tools."""

_CODE_TAG: Final = re.compile(
    r"^[ \t]*+(?:<(?P<tag>execute(?:_i?python|_code)?|i?python|code|tool_code|run|script)"
    r"(?P<attributes>\s[^<>\n]{0,200})?>|\[PYTHON\])(?P<code>.*?)(?:</(?P=tag)>|\[/PYTHON\]|\Z)",
    re.DOTALL | re.MULTILINE,
)
_OTHER_LANGUAGE: Final = re.compile(r"\b(?:lang|language|type|class)\s*+=(?!.*py)", re.IGNORECASE)
_CODE_TAG_END: Final = re.compile(r"</(?:execute\w*|i?python|code|tool_code|run|script)>\Z")
_LANGUAGE_LINE: Final = re.compile(r"\A\s*(?:python3?|py|tool_code)[ \t]*\n", re.IGNORECASE)
_ODD_FENCE: Final = re.compile(
    rf"^[ \t]{{0,16}}(?P<fence>``(?!`)|'''|\"\"\"|｀{{3}}|´{{3}})[ \t]*+(?:{_ALIAS})[ \t]*+\n(?P<body>.*?)"
    r"(?:^[ \t]{0,16}(?P=fence)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_ON_ONE_LINE: Final = re.compile(rf"```(?:{_ALIAS})[ \t]++(?P<body>[^`\n]++)```", re.IGNORECASE)
_ARROWS: Final = re.compile(
    rf">>>[ \t]?(?:{_ALIAS})[ \t]*+\n(?P<body>.*?)(?:\n(?:>>>|<<<)[ \t]*+)?", re.DOTALL | re.IGNORECASE
)


def intent_of(answer: str) -> Intent | None:
    """What an answer without a block wants to run; None for an answer that only says something. Pure."""
    if len(answer) > MAX_READ:
        return None
    answer = answer.replace("\r\n", "\n").lstrip(_UNSEEN)
    text = said_in(answer)
    outside, unlabelled = _blocks(text)
    messages = outside if len(text) == len(answer) else _blocks(answer)[0]
    intents = chain(
        calls_in_messages(messages),
        marked_calls(outside),
        _in_odd_fences(outside),
        _in_tags(outside),
        bare_calls(outside),
        _codes(unlabelled),
        _codes([_without_lone_fence(_LANGUAGE_LINE.sub("", _without_end_of_tag(text)))]),
    )
    return next(intents, None)


def said_in(answer: str) -> str:
    """The words of an answer, without tokens of a chat template that its server has left in it."""
    final = [
        match["body"] for match in HARMONY.finditer(answer) if match["header"].strip().startswith("final")
    ]
    return without_end_tokens(final[-1] if final else answer)


def without_end_tokens(text: str) -> str:
    """A text without the tokens by which models end what they write."""
    # From the end: a pattern would try each blank and each token as the first one, which takes n² steps.
    end = found = len(text)
    while True:
        end -= _blanks_before(text, end)
        token = next((each for each in _END_TOKENS if text.endswith(each, 0, end)), None)
        if token is None:
            return text if found == len(text) else text[:end]
        end = found = end - len(token)


def _blanks_before(text: str, end: int) -> int:
    start = end
    while start and text[start - 1].isspace():
        start -= 1
    return end - start


def _without_lone_fence(text: str) -> str:
    """A text without a fence that nothing opened, behind it."""
    rest = text.rstrip(" \t")
    for mark in "`~":
        bare = rest.rstrip(mark)
        if len(rest) - len(bare) >= 3:
            return bare.rstrip()
    return text


def _without_end_of_tag(text: str) -> str:
    """A text without the end of a tag that nothing opened, behind it."""
    rest = text.rstrip()
    bare = _CODE_TAG_END.sub("", rest)
    return text if bare == rest else bare.rstrip()


def _blocks(text: str) -> tuple[str, list[str]]:
    """A text in which a word stands for each block in another language, which is for the reader; and what is in
    blocks without a language."""
    kept: list[str] = []
    bodies: list[str] = []
    fence, language, start = "", "", 0
    for line in text.split("\n"):
        match = _FENCE_LINE.fullmatch(line)
        kept.append(line)
        if match is None:
            continue
        if not fence:
            if match["fence"][0] == "~" or "`" not in match["info"]:
                fence, language, start = match["fence"], match["info"].strip().lower(), len(kept)
        elif match["fence"].startswith(fence) and not match["info"].strip():
            if language in _NO_LANGUAGE:
                bodies.append("\n".join(kept[start:-1]))
            elif _is_for_the_reader(language):
                kept[start - 1 :] = [_EXAMPLE]
            fence = ""
    if fence and language in _NO_LANGUAGE:
        bodies.append("\n".join(kept[start:]))
    return "\n".join(kept), bodies


def _is_for_the_reader(info: str) -> bool:
    """Whether no block with this info string is meant for a machine. What says no language may be."""
    match = _LANGUAGE.match(info)
    return match is not None and match[1] not in _OF_CALLS and match[1] not in ALIASES


def _in_odd_fences(text: str) -> Iterator[Intent]:
    """Blocks of Python between marks that are no fences of Markdown; one that is the whole answer, on one line."""
    whole = text.strip()
    found = (_ON_ONE_LINE.fullmatch(whole), _ARROWS.fullmatch(whole), *_ODD_FENCE.finditer(text))
    return _codes(match["body"] for match in found if match is not None)


def _in_tags(text: str) -> Iterator[Intent]:
    for match in _CODE_TAG.finditer(text):
        follows = text[match.end() : match.end() + 1]
        is_in_words = match["tag"] == "code" and "\n" not in match["code"] and follows not in ("", "\n")
        if not (is_in_words or _OTHER_LANGUAGE.search(match["attributes"] or "")) and is_code(match["code"]):
            yield Intent(code=match["code"].strip("\n"))


def _codes(texts: Iterable[str]) -> Iterator[Intent]:
    """Those that are code."""
    for text in texts:
        if is_code(code := source_of(text)):
            yield Intent(code=code)
