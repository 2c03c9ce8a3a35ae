"""Skills of the CaveAgent library: Cenote's, and a registry of them."""

from __future__ import annotations

from collections.abc import Iterable

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
