"""Skills of the CaveAgent library: Cenote's, and a registry of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cenote.agent.prompt import prompts
from cenote.agent.prompt.system_prompt import injected_text
from cenote.cave_agent.runtime import IPythonRuntime
from cenote.runtime import Function
from cenote.skills import Skill, SkillDiscovery

__all__ = ["Skill", "SkillDiscovery", "SkillRegistry"]


class SkillRegistry:
    """Skills by name. An agent takes a list of skills; this is for programs that keep their own."""

    def __init__(self) -> None:
        self._skills: dict[str, Skill] = {}

    def add_skill(self, skill: Skill) -> None:
        self._skills[skill.name] = skill

    def add_skills(self, skills: Iterable[Skill]) -> None:
        for skill in skills:
            self.add_skill(skill)

    def get_skill(self, name: str) -> Skill | None:
        return self._skills.get(name)

    def list_skills(self) -> list[Skill]:
        return list(self._skills.values())

    def describe_skills(self) -> str:
        lines = [f"- {skill.name}: {skill.description}" for skill in self._skills.values()]
        return "\n".join(lines) or "No skills available"

    def build_skill_store(self) -> dict[str, str]:
        """The instructions of each."""
        return {name: skill.body_content for name, skill in self._skills.items()}


def skills_in(skills: Iterable[Skill], runtime: Any) -> list[Skill]:
    """As Cenote's agent takes them. What they export is in an IPythonRuntime from the beginning, and told of on
    activation."""
    return [_told(skill) for skill in skills] if isinstance(runtime, IPythonRuntime) else list(skills)


def _told(skill: Skill) -> Skill:
    if not skill.exports:
        return skill
    listing = injected_text(skill.functions, skill.variables, skill.types)
    body = f"{skill.body_content}\n\n{prompts.SKILL_EXPORTS}\n{listing}"
    return replace(skill, body_content=body, functions=[], variables=[], types=[])


def register_skills(skills: Iterable[Skill], functions: Iterable[Function], runtime: Any) -> None:
    """Puts what skills export into an IPythonRuntime, where no model is told of it, and the functions that read them.

    Raises UsageError (a ValueError) for a name that exists; nothing is put there then. What is there already, as for
    a second agent with the same skills, is left as it is.
    """
    if not isinstance(runtime, IPythonRuntime):
        return
    exports = [item for skill in skills for item in skill.exports if not runtime.has(item)]
    taken = {function.name for function in runtime.registered(Function)}
    runtime.inject_resources(
        functions=[function for function in functions if function.name not in taken],
        bindings=[(item.name, item) for item in exports],
    )
