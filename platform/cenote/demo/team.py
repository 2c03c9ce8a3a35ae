"""The three agents of the demonstration and the jails that they work in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cenote.demo.dataset import read_csv_bytes
from cenote.demo.narrated_agent import NarratedAgent
from cenote.models import Model
from cenote.runtime import ObjectReference, PythonRuntime, Variable
from cenote.security import ImportRule, SecurityChecker
from cenote.terminal.screen import Screen

OFFLINE = ("urllib", "requests", "httpx", "socket", "subprocess")


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """One model for each agent; with a real one, the same for all three."""

    orchestrator: Model
    cleaner: Model
    analyst: Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The agents and their runtimes, open as long as the team is."""

    orchestrator: NarratedAgent
    cleaner: NarratedAgent
    analyst: NarratedAgent
    runtimes: dict[str, PythonRuntime]

    @property
    def agents(self) -> tuple[NarratedAgent, ...]:
        return (self.orchestrator, self.cleaner, self.analyst)


@contextmanager
def open_team(models: Models, screen: Screen) -> Iterator[Team]:
    """Three agents, each in a jail of its own; `raw` and the other two are the orchestrator's variables."""
    rules = SecurityChecker([ImportRule(set(OFFLINE))])
    cleaner_runtime = PythonRuntime(
        variables=[
            Variable("raw", None, "field notes, a DataFrame"),
            Variable("clean", None, "the tidy table"),
        ],
        security_checker=rules,
    )
    analyst_runtime = PythonRuntime(
        variables=[
            Variable("penguins", None, "the tidy table, a DataFrame"),
            Variable("findings", {}, "a dict per species, of plain numbers"),
            Variable("figure", b"", "the plot, as the bytes of a PNG"),
        ],
        security_checker=rules,
    )
    with cleaner_runtime, analyst_runtime, load_raw() as raw:
        cleaner = NarratedAgent("cleaner", models.cleaner, cleaner_runtime, screen, "You tidy data.")
        analyst = NarratedAgent("analyst", models.analyst, analyst_runtime, screen, "You analyze data.")
        variables = [
            Variable("raw", raw, "field notes on penguins, a DataFrame"),
            Variable("cleaner", cleaner, "an agent that tidies data"),
            Variable("analyst", analyst, "an agent that analyzes data"),
        ]
        with PythonRuntime(variables=variables, security_checker=rules) as runtime:
            lead = "You direct two agents and hand them data; you do none of their work yourself."
            orchestrator = NarratedAgent("orchestrator", models.orchestrator, runtime, screen, lead)
            runtimes = {"orchestrator": runtime, "cleaner": cleaner_runtime, "analyst": analyst_runtime}
            yield Team(orchestrator=orchestrator, cleaner=cleaner, analyst=analyst, runtimes=runtimes)


def load_raw() -> ObjectReference:
    """The data set as a reference. It is parsed in a jail that ends here; the value outlives it."""
    with PythonRuntime(variables=[Variable("csv", read_csv_bytes())]) as runtime:
        runtime.execute("import io, pandas\nraw = pandas.read_csv(io.BytesIO(csv))")
        return runtime.share("raw")
