"""Skills: instructions that an agent reads when a task calls for them, after the Agent Skills standard."""

from cenote.skills.discovery import SkillDiscovery
from cenote.skills.skill import Skill, SkillError, SkillWarning

__all__ = ["Skill", "SkillDiscovery", "SkillError", "SkillWarning"]
