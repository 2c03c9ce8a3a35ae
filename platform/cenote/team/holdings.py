"""Which versions of the team's variables an agent has, and what it has to be told of newer ones."""

from __future__ import annotations

from cenote.agent.signatures import type_name
from cenote.team.variables import TeamVariable, TeamVariables
from cenote_security.printable import printable


class Holdings:
    """What one agent holds. It is told of each newer version once."""

    def __init__(self, variables: TeamVariables) -> None:
        self._variables = variables
        self._told: dict[str, int] = {}

    def took(self, variable: TeamVariable) -> None:
        """The agent has this version: it fetched it, or made it."""
        self._told[variable.name] = max(variable.version, self._told.get(variable.name, 0))

    def notices(self) -> tuple[str, ...]:
        """A line for each variable that was replaced since the agent was given it, or was last told."""
        newer = [
            variable
            for variable in self._variables.newest()
            if variable.version > self._told.get(variable.name, variable.version)
        ]
        for variable in newer:
            self.took(variable)
        return tuple(map(_line, newer))


def _line(variable: TeamVariable) -> str:
    author = f" by {variable.author}" if variable.author else ""
    kind = printable(type_name(variable.reference.info))
    shape = f" {variable.reference.shape}" if variable.reference.shape else ""
    name = variable.name
    return f"a new `{name}` is there: version {variable.version}{author}, {kind}{shape}; team.get({name!r}) gives it"
