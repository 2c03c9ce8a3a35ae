"""The system prompt: what the agent is told, and what its runtime holds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from cenote.agent.prompt import prompts
from cenote.agent.prompt.stubs import (
    arguments_in,
    class_doc,
    comment,
    function_stub,
    is_own,
    lean_stub,
    records_in,
    type_name,
    type_stub,
)
from cenote.agent.vocabulary.commands import MAX_NAMES, RuntimeDescription
from cenote.agent.vocabulary.runtime_port import SubAgent
from cenote.runtime.inject.injectables import Function, Type, Variable
from cenote_security.errors import UsageError
from cenote_worker.execution.results import VariableInfo

_PLACEHOLDERS = frozenset(
    {"instructions", "system_instructions", "context", "functions", "variables", "types", "skills", "current_time",
     "python_block_identifier"}
)  # fmt: skip
PromptStyle = Literal["lean", "full"]
MAX_CHANGES = 20
"""Lines of a prompt. With more of them different it is written anew."""

_NAME = re.compile(r"\w*")
_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptParts:
    """What its owner tells an agent; `CaveAgent` documents each."""

    instructions: str = prompts.DEFAULT_INSTRUCTIONS
    system_instructions: str | None = None
    template: str = prompts.DEFAULT_SYSTEM_PROMPT_TEMPLATE
    python_block_identifier: str = "python"
    prompt: PromptStyle = "lean"

    @property
    def full(self) -> bool:
        return self.prompt == "full"

    @property
    def way_of_working(self) -> str:
        if self.system_instructions is not None:
            return self.system_instructions
        return prompts.FULL_SYSTEM_INSTRUCTIONS if self.full else prompts.DEFAULT_SYSTEM_INSTRUCTIONS

    @property
    def patch_hint(self) -> str:
        """How a step is corrected. It is no part of the system prompt: most tasks need no patch."""
        return prompts.FULL_PATCHES if self.full else prompts.PATCHES

    def __post_init__(self) -> None:
        if self.prompt not in get_args(PromptStyle):
            raise UsageError(f'prompt is "lean" or "full", not {self.prompt!r:.100}')
        if not self.python_block_identifier.strip():
            raise UsageError("python_block_identifier is the word behind ``` of blocks to run, not empty")
        unknown = [m[1] for m in _BRACES.finditer(self.template) if m[1] and m[1] not in _PLACEHOLDERS]
        if unknown:
            known = ", ".join(sorted(_PLACEHOLDERS))
            raise UsageError(
                f"system_prompt_template has no placeholder {{{unknown[0]}}}; there are {known}; "
                f"write {{{{{unknown[0]}}}}} for literal braces"
            )


def system_prompt(
    parts: PromptParts, scene: RuntimeDescription, now: datetime, found: Collection[str] = frozenset()
) -> str:
    """The whole system prompt.

    now: shown only where the template asks for it. found: names that neither an injection nor the agent has made.
    """
    sections = _sections(scene, found, full=parts.full)
    values = {name: text or prompts.EMPTY for name, text in sections.plain.items()}
    values["context"] = sections.context
    values["python_block_identifier"] = parts.python_block_identifier
    values["current_time"] = now.strftime("%Y-%m-%d %H:%M:%S")
    values["instructions"] = parts.instructions
    filled = _fill(parts.way_of_working, {"python_block_identifier": parts.python_block_identifier})
    values["system_instructions"] = filled
    return _fill(parts.template, values).strip()


def changes_since(former: str, new: str) -> str | None:
    """What a model has to know that has read the former prompt; None where it had better read the new one.

    Providers charge a tenth for what a request has in common with the one before, from its beginning: a prompt that
    is changed costs the whole conversation.
    """
    before, after = (dict.fromkeys(filter(_says_something, text.split("\n"))) for text in (former, new))
    come = [line for line in after if line not in before]
    gone = [line for line in before if line not in after]
    if len(come) + len(gone) > MAX_CHANGES:
        return None
    there = {_listed_name(line) for line in after}
    names = [name for name in map(_listed_name, gone) if name not in there]
    if not all(name.isidentifier() for name in (*names, *map(_listed_name, come))):
        return None
    news = [prompts.NOW_THERE.format(lines="\n".join(come))] if come else []
    return "\n".join([*news, *([prompts.NOT_THERE.format(names=", ".join(names))] if names else [])])


def _says_something(line: str) -> bool:
    """Headings do not by themselves."""
    return bool(line.strip()) and not line.endswith(":")


def _listed_name(line: str) -> str:
    """Of what a line of the context is about."""
    return _NAME.match(line.removeprefix("await "))[0]  # type: ignore[index]  # it matches anything


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replace placeholders and doubled braces, in one pass: what is put in may hold braces of its own."""

    def replace(match: re.Match[str]) -> str:
        return values.get(match[1], match[0]) if match[1] else match[0][0]

    return _BRACES.sub(replace, template)


@dataclass(frozen=True, slots=True)
class _Sections:
    plain: Mapping[str, str]
    context: str


def _sections(scene: RuntimeDescription, found: Collection[str], *, full: bool) -> _Sections:
    agents = "\n".join(_agent_line(v) for v in scene.variables if isinstance(v.value, SubAgent))
    functions = "\n".join(function_stub(function, full=full) for function in scene.functions)
    mentioned = _mentioned(scene)
    variables = "\n".join(_variable_lines(scene, found, {cls.__name__ for cls in mentioned}))
    types = "\n".join(map(_type_text, scene.types))
    shapes = "\n".join(_shapes(mentioned, full=full))
    shapes_heading = prompts.SHAPES_HEADING if full else prompts.LEAN_SHAPES_HEADING
    differing = "\n".join(scene.differing)
    headed = [
        (prompts.FUNCTIONS_HEADING, functions),
        (prompts.VARIABLES_HEADING, variables),
        (prompts.AGENTS_HEADING, agents),
        (prompts.TYPES_HEADING, types),
        (shapes_heading, shapes),
        (prompts.DIFFERING_HEADING, differing),
        (prompts.SKILLS_HEADING, scene.skills),
        (prompts.CHECKPOINTS_HEADING, scene.going_back),
    ]
    together = prompts.TOGETHER.get(scene.together, "")
    plain = {
        "functions": _joined(functions, scene.going_back),
        "variables": _joined(
            together,
            variables,
            agents and f"{prompts.AGENTS_HEADING}\n{agents}",
            differing and f"{prompts.DIFFERING_HEADING}\n{differing}",
        ),
        "types": _joined(types, shapes and f"{shapes_heading}\n{shapes}"),
        "skills": scene.skills,
    }
    paragraphs = [together] if together else []
    paragraphs += [f"{heading}\n{text}" for heading, text in headed if text]
    return _Sections(plain, "\n\n".join(paragraphs))


def _joined(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def injected_text(functions: Sequence[Function], variables: Sequence[Variable], types: Sequence[Type]) -> str:
    """What an injection brought, as the system prompt would list it."""
    lines = [
        *map(function_stub, functions),
        *(_variable_line(v, None) for v in variables),
        *map(_type_text, types),
    ]
    return "\n".join(lines)


def _variable_lines(
    scene: RuntimeDescription, found: Collection[str], classes: Collection[str]
) -> Iterator[str]:
    """Variables that were injected or found and are still there; the model knows those that its own code made.

    Where others work too it does not know theirs, so all are listed. classes: names of those that are listed as such.
    """
    described = {info.name: info for info in scene.described}
    for variable in scene.variables:
        if not isinstance(variable.value, SubAgent) and (variable.host or variable.name in described):
            yield _variable_line(variable, described.get(variable.name))
    items: tuple[Function | Variable | Type, ...] = (*scene.functions, *scene.variables, *scene.types)
    injected = {item.name for item in items}
    others = [info for info in scene.described if info.name not in injected and info.name not in classes]
    yield from _made_variable_lines(
        others if scene.together == "shared" else [info for info in others if info.name in found]
    )


def _made_variable_lines(described: Iterable[VariableInfo]) -> Iterator[str]:
    """Variables that cells have made. Their names come out of a jail: only names pass."""
    made = [info for info in described if info.name.isidentifier()]
    for info in made[:MAX_NAMES]:
        shape = f" {info.shape}" if info.shape else ""
        yield f"{info.name}: {type_name(info)}{shape}{comment(info.description)}"
    if len(made) > MAX_NAMES:
        yield f"and {len(made) - MAX_NAMES} more"


def _variable_line(variable: Variable, info: VariableInfo | None) -> str:
    """`name: Type (shape)  # description; metadata`, never the value."""
    kind = type_name(info) if info and not variable.host else type(variable.value).__name__
    shape = f" {info.shape}" if info and info.shape and not variable.host else ""
    metadata = info.description if info and not variable.host else ""
    doc = "; ".join(text for text in (variable.description, metadata) if text)
    return f"{variable.name}: {kind}{shape}{comment(doc)}"


def _agent_line(variable: Variable) -> str:
    names = variable.value.variable_names
    holds = f"has variables {', '.join(names)}" if names else ""
    return f"{variable.name}{comment('; '.join(text for text in (variable.description, holds) if text))}"


def _type_text(item: Type) -> str:
    doc = item.description or (class_doc(item.value) if item.include_doc else "")
    return type_stub(item.value, doc) if item.include_schema else f"{item.name}{comment(doc)}"


def _shapes(mentioned: Mapping[type, _Mention], *, full: bool) -> Iterator[str]:
    for cls, mention in mentioned.items():
        stub = type_stub if full or mention.is_made else lean_stub
        yield stub(cls, class_doc(cls), code=mention.has_code)


@dataclass(slots=True)
class _Mention:
    """How a class is used. has_code: the namespace has its methods: what host functions give is there as data.
    is_made: a caller has to make objects of it."""

    has_code: bool = False
    is_made: bool = False


def _mentioned(scene: RuntimeDescription) -> dict[type, _Mention]:
    """Classes that were not injected by name but stand in signatures, or are those of variables."""
    found = defaultdict[type, _Mention](_Mention)

    def note(target: object, *, has_code: bool) -> None:
        for cls in records_in(target):
            found[cls].has_code |= has_code
        for cls in arguments_in(target):
            found[cls].is_made = True

    for function in scene.functions:
        note(function.func, has_code=not function.host or function.by_value)
    for item in scene.types:
        note(item.value, has_code=True)
    for variable in scene.variables:
        cls = type(variable.value)
        if is_own(cls) and not isinstance(variable.value, SubAgent):
            found[cls].has_code = True
            note(cls, has_code=not variable.host or variable.by_value)
    listed = {item.value for item in scene.types}
    return {cls: mention for cls, mention in found.items() if cls not in listed}
