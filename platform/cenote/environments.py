"""Environments of this machine: packages that jails have instead of those of their client.

    from cenote import Environment
    from cenote.environments import EnvironmentStore, build

    built = build(Environment(["pandas==2.2.3"]), progress=print)
    EnvironmentStore().name("data", built.digest)

`SandboxPolicy(environment=...)` takes the definition, the name or the digest.
"""

from __future__ import annotations

from cenote_security.environment import Environment
from cenote_worker.environments.building import build
from cenote_worker.environments.errors import (
    EnvironmentBuildError,
    EnvironmentInUseError,
    UnfitEnvironmentError,
    UnknownEnvironmentError,
)
from cenote_worker.environments.store import BuiltEnvironment, EnvironmentStore

__all__ = [
    "build",
    "BuiltEnvironment",
    "Environment",
    "EnvironmentBuildError",
    "EnvironmentInUseError",
    "EnvironmentStore",
    "UnfitEnvironmentError",
    "UnknownEnvironmentError",
]
