"""Environments of a platform's tenant over HTTP: built in the background, listed and removed."""

from __future__ import annotations

import asyncio
from typing import Final

from cenote.doors.http_api import HttpOperation, OperationCall
from cenote.doors.http_models import NewEnvironment
from cenote.runtime.remote.environments import EnvironmentInfo, PlatformEnvironments

_ALL: Final = "/v1/environments"
_ONE: Final = f"{_ALL}/{{environment}}"


async def list_environments(asked: OperationCall[None]) -> list[EnvironmentInfo]:
    return await asyncio.to_thread(_there(asked).list)


async def build_environment(asked: OperationCall[NewEnvironment]) -> EnvironmentInfo:
    wanted = asked.body
    return await asyncio.to_thread(
        _there(asked).begin,
        asked.path["environment"],
        wanted.requirements,
        python=wanted.python,
        lock=wanted.lock,
        lock_file=wanted.lock_file if wanted.lock else "",
    )


async def get_environment(asked: OperationCall[None]) -> EnvironmentInfo:
    return await asyncio.to_thread(_there(asked).get, asked.path["environment"])


async def remove_environment(asked: OperationCall[None]) -> None:
    await asyncio.to_thread(_there(asked).remove, asked.path["environment"])


def _there(asked: OperationCall[NewEnvironment] | OperationCall[None]) -> PlatformEnvironments:
    """Raises UsageError on a server without a platform."""
    return asked.caller.the_platform().environments


ENVIRONMENT_OPERATIONS: Final = (
    HttpOperation(
        "list_environments",
        "GET",
        _ALL,
        "The operator's environments, then the tenant's own",
        list_environments,
        answer=list[EnvironmentInfo],
    ),
    HttpOperation(
        "build_environment",
        "PUT",
        _ONE,
        "Has an environment built in the background, unless it is there; GET says how far it is",
        build_environment,
        body=NewEnvironment,
        answer=EnvironmentInfo,
    ),
    HttpOperation(
        "get_environment", "GET", _ONE, "How far an environment is", get_environment, answer=EnvironmentInfo
    ),
    HttpOperation(
        "remove_environment",
        "DELETE",
        _ONE,
        "Removes an environment that nothing uses",
        remove_environment,
        status=204,
    ),
)
