"""Skills while an agent works: read on demand, and brought into its runtime."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.agent import prompts
from cenote.agent.namespace_functions import NamespaceFunctions, install
from cenote.agent.port import AgentRuntime
from cenote.agent.system_prompt import injected_text
from cenote.runtime.injectables import Injectable
from cenote.skills import Skill, SkillError
from cenote_security.errors import CenoteError, NameExistsError, UsageError
from cenote_worker.in_jail.skill_files import Instructions


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
        lines = [f"{skill.name}: {' '.join(skill.description.split())}" for skill in self._skills.values()]
        activate = await install(runtime, self.activate_skill, "idempotent")
        hints = [prompts.SKILLS_HINT.format(activate=activate)]
        if any(skill.has_files for skill in self._skills.values()):
            read = await install(runtime, self.read_skill_file, "pure")
            hints.append(prompts.SKILL_FILES_HINT.format(read=read))
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
