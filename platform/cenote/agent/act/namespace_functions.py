"""Functions that an agent itself puts into its runtime: full outputs, labels of states, skills.

Model-written code reads outputs that were shown in part, labels states and goes back to them, and reads skills when
a task calls for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Literal

from cenote.agent.prompt import prompts
from cenote.agent.prompt.system_prompt import injected_text
from cenote.agent.vocabulary.runtime_port import AgentRuntime, ReversibleRuntime
from cenote.runtime.inject.injectables import Effect, Function, Injectable, Variable, check_name
from cenote.skills import Skill, SkillError
from cenote_security.errors import CenoteError, NameExistsError, NotKeptError, UnavailableError, UsageError
from cenote_worker.jail.workdir.skill_files import Instructions


class NamespaceFunctions:
    """Base of classes whose methods an agent injects as host functions.

    The prompt names them where they are of use, so that they don't stand among the tools.
    """


def is_agents_own(function: Function) -> bool:
    """Whether an agent, this one or another of the same runtime, put this function there."""
    return isinstance(getattr(function.func, "__self__", None), NamespaceFunctions)


async def install(runtime: AgentRuntime, method: Callable[..., object], effect: Effect) -> str:
    """Makes sure that the namespace has a method, and gives its name there.

    That is the method's own name, with a number where it is taken: by a variable of the user's, by code, or by
    another agent of the same runtime.
    """
    for other in runtime.functions:
        if other.func == method:
            return other.name
    for number in count(1):
        name = method.__name__ if number == 1 else f"{method.__name__}_{number}"
        try:
            await runtime.inject(Function(method, name=name, host=True, effect=effect))
        except NameExistsError:
            continue
        return name
    raise AssertionError("there is always another number")


MAX_CHARACTERS = 64 * 2**20
"""Characters kept over the life of an agent; beyond that the oldest outputs go."""


class KeptOutputs(NamespaceFunctions):
    """Outputs by the number of their cell. Read from other threads while the agent works."""

    def __init__(self, limit: int = MAX_CHARACTERS) -> None:
        self._texts: dict[int, str] = {}
        self._limit = limit

    def keep(self, cell: int, text: str) -> None:
        """Keep a text; the first one given for a cell stays, which is the longest."""
        self._texts.setdefault(cell, text)
        while len(self._texts) > 1 and sum(map(len, self._texts.values())) > self._limit:
            del self._texts[next(iter(self._texts))]

    async def handle(self, runtime: AgentRuntime, cell: int) -> str:
        """An expression that gives the text kept for a cell, when code in the runtime evaluates it."""
        return f"{await install(runtime, self.read_output, 'pure')}({cell})"

    def branch(self) -> KeptOutputs:
        """A copy that goes its own way."""
        branch = type(self)(self._limit)
        branch._texts = dict(self._texts)
        return branch

    def read_output(self, number: int) -> str:
        """The full output of an earlier block."""
        try:
            return self._texts[number]
        except (KeyError, TypeError):
            kept = ", ".join(map(str, self._texts)) or "none"
            raise LookupError(f"no output is kept under {number!r}; there are {kept}") from None


def highest_number(prefix: str, texts: Iterable[str]) -> int:
    """The highest number after a prefix that texts mention: a model goes by what it has read."""
    mentioned = re.compile(rf"\b{re.escape(prefix)}_([0-9]{{1,9}})\b")
    return max((int(found[1]) for text in texts for found in mentioned.finditer(text)), default=0)


class OutputVariables(KeptOutputs):
    """Outputs as variables of the namespace: `_output_1`, `_output_2`, ... after the prefix, by the numbers that are
    free. They are there for good, and code can slice and search them as any text."""

    def __init__(self, prefix: str, above: int = 0, limit: int = MAX_CHARACTERS) -> None:
        """above: numbers up to this one are taken."""
        super().__init__(limit)
        check_name(f"{prefix}_1", "variable")
        self._prefix = prefix
        self._above = above
        self._names: dict[int, str] = {}

    @property
    def last(self) -> str | None:
        """The name of the variable that was made last."""
        return next(reversed(self._names.values()), None)

    async def handle(self, runtime: AgentRuntime, cell: int) -> str:
        if cell not in self._names:
            self._names[cell] = await self._bound(runtime, self._texts[cell])
        return self._names[cell]

    async def _bound(self, runtime: AgentRuntime, text: str) -> str:
        for number in count(self._above + len(self._names) + 1):
            try:
                await runtime.inject(Variable(name := f"{self._prefix}_{number}", text))
            except NameExistsError:
                continue
            return name
        raise AssertionError("there is always another number")

    def branch(self) -> OutputVariables:
        branch = OutputVariables(self._prefix, self._above, self._limit)
        branch._texts, branch._names = dict(self._texts), dict(self._names)
        return branch


MAX_LABEL = 100
"""Characters of a label."""


class StateLabels(NamespaceFunctions):
    """The labels of one agent. What its code asks for while a cell runs is done by `settle`, behind it."""

    def __init__(self) -> None:
        self._labels: dict[str, None] = {}
        self._pending: list[tuple[Literal["keep", "return"], str]] = []

    async def install(self, runtime: AgentRuntime) -> str:
        """Put both functions into a runtime; gives what the model is told of them."""
        checkpoint = await install(runtime, self.checkpoint, "idempotent")
        rollback = await install(runtime, self.rollback, "idempotent")
        return prompts.CHECKPOINTS_HINT.format(checkpoint=checkpoint, rollback=rollback)

    def checkpoint(self, label: str) -> str:
        """Keep the state as it is when this block has ended."""
        if not isinstance(label, str) or not 0 < len(label) <= MAX_LABEL:
            raise ValueError(f"a label is a text of 1 to {MAX_LABEL} characters")
        self._pending.append(("keep", label))
        return f"the state is kept as {label!r} when this block has ended"

    def rollback(self, label: str) -> str:
        """Go back to a kept state when this block has ended."""
        if label not in self._labels:
            known = ", ".join(map(repr, self._labels)) or "none"
            raise LookupError(f"no state is kept as {label!r}; there are {known}")
        self._pending.append(("return", label))
        return f"back to {label!r} when this block has ended"

    async def settle(self, runtime: ReversibleRuntime) -> tuple[str, ...]:
        """Do what the last cell has asked for, in its order; gives what happened, for the model."""
        pending, self._pending = self._pending, []
        return tuple([await self._do(runtime, deed, label) for deed, label in pending])

    async def _do(self, runtime: ReversibleRuntime, deed: Literal["keep", "return"], label: str) -> str:
        try:
            if deed == "keep":
                await runtime.snapshot(label)
                self._labels[label] = None
                return prompts.CHECKPOINT_KEPT.format(label=label)
            back = await runtime.rollback(label)
        except NotKeptError:
            self._labels.pop(label, None)
            return prompts.CHECKPOINT_GONE.format(label=label)
        except UnavailableError as error:
            return prompts.CHECKPOINT_REFUSED.format(label=label, reason=error)
        severed = prompts.SEVERED.format(names=", ".join(back.severed)) if back.severed else ""
        return prompts.ROLLED_BACK.format(label=label) + severed


class SkillActivation(NamespaceFunctions):
    """The skills of one agent.

    `activate_skill` runs in the middle of a cell, while the runtime is busy: it gives the instructions at once, and
    what the skill exports is injected by `settle`, when the cell has ended.
    """

    def __init__(self, skills: Sequence[Skill]) -> None:
        for skill in skills:
            if not isinstance(skill, Skill):
                raise UsageError(f"skills are Skill objects, not {type(skill).__name__}; see skills_dir")
        self._skills = {skill.name: skill for skill in skills}
        if len(self._skills) < len(skills):
            names = [skill.name for skill in skills]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"two skills are named {twice!r}; names of an agent's skills must differ")
        self._pending: list[Skill] = []
        self._runtime: AgentRuntime | None = None

    @property
    def any(self) -> bool:
        return bool(self._skills)

    def branch(self) -> SkillActivation:
        """For a copy of the runtime."""
        return SkillActivation(list(self._skills.values()))

    async def install(self, runtime: AgentRuntime) -> str:
        """Put into a runtime what the skills need; gives what the model is told of them: a line each, and how."""
        self._runtime = runtime
        if not self._skills:
            return ""
        return self.hints(*[await install(runtime, one.func, one.effect) for one in self.functions])

    @property
    def functions(self) -> list[Function]:
        """What code reads skills by, where there are any: instructions, and files where a skill has some."""
        if not self._skills:
            return []
        functions = [Function(self.activate_skill, host=True, effect="idempotent")]
        if any(skill.has_files for skill in self._skills.values()):
            functions.append(Function(self.read_skill_file, host=True, effect="pure"))
        return functions

    def hints(self, *names: str) -> str:
        """What the model is told of the skills. names: of the functions in the runtime, where they differ."""
        if not self._skills:
            return ""
        lines = [f"{skill.name}: {' '.join(skill.description.split())}" for skill in self._skills.values()]
        activate, *read = names or [function.name for function in self.functions]
        hints = [prompts.SKILLS_HINT.format(activate=activate)]
        hints += [prompts.SKILL_FILES_HINT.format(read=name) for name in read]
        return "\n".join([*lines, " ".join(hints)])

    def activate_skill(self, name: str) -> str:
        """Activate a skill; gives its instructions, and puts its files into the working directory."""
        skill = self._find(name)
        text = self._instructions(skill)
        if not skill.has_files:
            return text
        try:
            return Instructions(text, skill.name, skill.files_along())
        except SkillError as error:  # its instructions are good all the same
            return f"{text}\n\n{prompts.SKILL_WITHOUT_FILES.format(problem=error)}"

    def _instructions(self, skill: Skill) -> str:
        missing = self._missing(skill)
        if not missing:
            return skill.body_content
        if not any(skill is pending for pending in self._pending):
            self._pending.append(skill)
        listing = injected_text(skill.functions, skill.variables, skill.types)
        return f"{skill.body_content}\n\n{prompts.SKILL_EXPORTS}\n{listing}"

    def read_skill_file(self, name: str, path: str) -> str | bytes:
        """A file of a skill: its text, or the bytes of one that is no text."""
        skill = self._find(name)
        try:
            return skill.read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError:
            return skill.read_bytes(path)

    async def settle(self) -> tuple[str, ...]:
        """Inject what was activated since the last time; gives what went wrong, for the model."""
        problems = []
        while self._pending:
            skill = self._pending.pop(0)
            try:
                if self._runtime is not None:
                    await self._runtime.inject(*self._missing(skill))
            except CenoteError as error:
                problems.append(f"Skill {skill.name} is not activated: {error}")
        return tuple(problems)

    def _missing(self, skill: Skill) -> list[Injectable]:
        """What of the skill's exports the runtime does not have. Raises NameExistsError for a name that is taken."""
        present = self._present()
        missing = [item for item in skill.exports if not any(item is other for other in present)]
        taken = {item.name for item in present}
        for item in missing:
            if item.name in taken:
                raise NameExistsError(item.name)
        return missing

    def _present(self) -> list[Injectable]:
        if self._runtime is None:
            return []
        return [*self._runtime.functions, *self._runtime.variables, *self._runtime.types]

    def _find(self, name: str) -> Skill:
        skill = self._skills.get(name)
        if skill is None:
            raise LookupError(f"no skill is named {name!r}; there are {', '.join(self._skills)}")
        return skill
