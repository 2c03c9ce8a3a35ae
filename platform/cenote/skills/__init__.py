"""Skills: instructions that an agent reads when a task calls for them, after the Agent Skills standard."""

from cenote.skills.discovery import SkillDiscovery
from cenote.skills.errors import SkillError, SkillWarning
from cenote.skills.skill import Skill

__all__ = ["Skill", "SkillDiscovery", "SkillError", "SkillWarning"]
