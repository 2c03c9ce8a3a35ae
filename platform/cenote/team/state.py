"""The plan and the progress of a team as plain data, to be stored and started again from. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from cenote_security.errors import UsageError

VERSION = 1
"""Version of the format. A newer one is refused: the same fields may mean something else in it."""

StepStatus = Literal["running", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceState:
    """A reference: its id in the store, and what may be said of it."""

    id: str
    type: str
    shape: tuple[int, ...] | None = None
    size: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """How far one step of a plan is.

    key: its place: the name of the run, and the way through the plan, such as `run-1/0/2`.
    inputs: ids of references, or digests of plain values; empty strings for what has neither.
    output: None until the step is done, and for steps that give none. error: why it failed.
    """

    key: str
    agent: str
    task: str
    status: StepStatus
    inputs: tuple[str, ...] = ()
    output: ReferenceState | None = None
    answer: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """An agent of the team. parent: whose sub-agent it is; empty for none."""

    name: str
    model: str
    parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableState:
    """The newest version of a team variable."""

    name: str
    version: int
    author: str
    reference: ReferenceState


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamState:
    """Everything that a team knows of itself, values excepted. tokens, nanodollars: spent so far, or reserved."""

    team: str
    tokens: int = 0
    nanodollars: int = 0
    agents: tuple[AgentState, ...] = ()
    steps: tuple[StepState, ...] = ()
    variables: tuple[VariableState, ...] = ()

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TeamState:
        """Raises UsageError for what `to_json` of this version, or an earlier one, did not write."""
        try:
            data = json.loads(text)
            if not 1 <= data["version"] <= VERSION:
                raise UsageError(f"the state of a team in format {data['version']!r} takes a newer Cenote")
            return _team(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"this is not the state of a team: {type(error).__name__}: {error}") from None


def _team(data: Mapping[str, Any]) -> TeamState:
    return TeamState(
        team=str(data["team"]),
        tokens=int(data["tokens"]),
        nanodollars=int(data["nanodollars"]),
        agents=tuple(AgentState(**agent) for agent in data["agents"]),
        steps=tuple(map(_step, data["steps"])),
        variables=tuple(
            VariableState(**{**variable, "reference": _reference(variable["reference"])})
            for variable in data["variables"]
        ),
    )


def _step(data: Mapping[str, Any]) -> StepState:
    if data["status"] not in get_args(StepStatus):
        raise ValueError(f"no status of a step: {data['status']!r}")
    output = None if data["output"] is None else _reference(data["output"])
    return StepState(**{**data, "inputs": tuple(map(str, data["inputs"])), "output": output})


def _reference(data: Mapping[str, Any]) -> ReferenceState:
    shape = None if data["shape"] is None else tuple(map(int, data["shape"]))
    return ReferenceState(**{**data, "shape": shape})
