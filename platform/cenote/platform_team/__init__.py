"""Teams whose loop runs on a platform, as scripts hold them."""

from __future__ import annotations

from cenote_security.extras import importing

with importing("the platform's client", "platform"):
    from cenote.platform_team.model_spec import ModelSpec
    from cenote.platform_team.reports import StepStatus, TeamNews, TeamRun, TeamRunError, TeamStatus
    from cenote.platform_team.team import PlatformTeam

__all__ = ["ModelSpec", "PlatformTeam", "StepStatus", "TeamNews", "TeamRun", "TeamRunError", "TeamStatus"]
