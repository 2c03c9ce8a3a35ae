"""What can go wrong with environments, typed by what the caller can do about it."""

from __future__ import annotations

from cenote_security.errors import UnavailableError, UsageError


class EnvironmentBuildError(UnavailableError):
    """An environment could not be built: packages are not available, or the disk is full. Nothing of it is left.

    doing: the part of the work that failed. reason: the message of uv or of the system.
    """

    def __init__(self, doing: str, reason: str) -> None:
        super().__init__(doing, reason)
        self.doing = doing
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.doing} failed, and nothing of the environment was left: {self.reason}"


class UnfitEnvironmentError(UsageError):
    """No jail of this process can run in that environment. what: which one. reason: with the next step."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what} cannot be used here: {self.reason}"


class UnknownEnvironmentError(UsageError):
    """No environment of that name or digest is built on this machine."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted

    def __str__(self) -> str:
        return (
            f"no environment {self.wanted!r} is built on this machine; `cenote env ls` lists those that are, "
            f"`cenote env build` builds one"
        )


class EnvironmentInUseError(UnavailableError):
    """An environment cannot be removed while jails may start from it."""

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        self.digest = digest

    def __str__(self) -> str:
        return f"environment {self.digest[:12]} is in use; close its runtimes, and end the processes that had them"
