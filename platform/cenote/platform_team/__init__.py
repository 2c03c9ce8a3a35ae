"""A script's interface to teams whose loop runs on a platform."""

from __future__ import annotations

from cenote_security.extras import importing

with importing("the platform's client", "platform"):
    from cenote.platform_team.team import (
        ModelSpec,
        PlatformTeam,
        StepStatus,
        TeamNews,
        TeamRun,
        TeamRunError,
        TeamStatus,
    )

__all__ = ["ModelSpec", "PlatformTeam", "StepStatus", "TeamNews", "TeamRun", "TeamRunError", "TeamStatus"]
