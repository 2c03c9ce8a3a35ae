"""The three agents of the demonstration, the data set that they share, and the jails that they work in.

Each prints what it does, also when another agent's code runs it. The tables at the end say what each agent cost,
and what went past the prompts from jail to jail.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources

from cenote.agent import AgentResponse, CaveAgent, ExecutionStatus, StoppedEvent, StopReason
from cenote.demo.meter import MeasuredModel
from cenote.models import Model
from cenote.models.messages import TokenUsage
from cenote.runtime import ObjectReference, PythonRuntime, Variable
from cenote.security import ImportRule, SecurityChecker
from cenote.terminal.screen import Screen
from cenote.terminal.transcript import TranscriptPrinter

TITLE = "Palmer penguins, raw field notes (344 birds, CC0)"


def read_csv_bytes() -> bytes:
    """The CSV file, as it was published."""
    return resources.files("cenote.demo").joinpath("data", "penguins-raw.csv").read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """One agent. seconds: wall time of its runs; prompt_bytes: UTF-8 of all that was sent to its model."""

    name: str
    calls: int
    usage: TokenUsage
    prompt_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A value that went from one namespace into another, and through no prompt."""

    what: str
    source: str
    target: str
    size: int


HEADER = ("agent", "model calls", "prompt tokens", "cached", "completion", "prompt bytes", "seconds")


def cost_table(rows: Sequence[AgentRow]) -> list[str]:
    """The lines of the table of costs, with a total of what can be added up."""
    body = [_cells(row) for row in rows]
    total = AgentRow(
        name="together",
        calls=sum(row.calls for row in rows),
        usage=sum((row.usage for row in rows), TokenUsage()),
        prompt_bytes=sum(row.prompt_bytes for row in rows),
        seconds=max((row.seconds for row in rows), default=0.0),
    )
    return align([HEADER, *body, _cells(total)])


def _cells(row: AgentRow) -> tuple[str, ...]:
    about = "~" if row.usage.estimated else ""
    tokens = (f"{about}{count:,}" for count in (row.usage.prompt, row.usage.cached, row.usage.completion))
    return (row.name, str(row.calls), *tokens, f"{row.prompt_bytes:,}", f"{row.seconds:.1f}")


def transfer_table(transfers: Sequence[Transfer]) -> list[str]:
    """The lines of the table of hand-overs, with the bytes of all."""
    body = [(t.what, f"{t.source} -> {t.target}", f"{t.size:,}") for t in transfers]
    total = ("together", "", f"{sum(t.size for t in transfers):,}")
    return align([("jail to jail", "from -> to", "bytes"), *body, total])


def align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines with columns of equal width, columns of figures to the right."""
    columns = [_fit(column) for column in zip(*rows, strict=True)]
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _fit(column: tuple[str, ...]) -> list[str]:
    width = max(map(len, column))
    figures = column[-1].lstrip("~")[:1].isdigit()
    return [cell.rjust(width) if figures else cell.ljust(width) for cell in column]


class NarratedAgent(CaveAgent):
    """A CaveAgent with a name, a transcript and a meter."""

    def __init__(
        self, name: str, model: Model, runtime: PythonRuntime, screen: Screen, instructions: str
    ) -> None:
        self.name = name
        self._meter = MeasuredModel(model)
        self._seconds = 0.0
        self._transcript = TranscriptPrinter(screen, name)
        super().__init__(self._meter, runtime=runtime, instructions=instructions, max_steps=12)

    async def run(self, task: str) -> AgentResponse:
        started = time.perf_counter()
        content, status, code = "", ExecutionStatus.MAX_STEPS_REACHED, []
        async for event in self.stream_events(task):
            self._transcript.show(event)
            if event.type.value == "code":
                code.append(event.content)
            if event.type.value == "final_response":
                content = event.content
            if isinstance(event, StoppedEvent) and event.stop_reason is StopReason.COMPLETED:
                status = ExecutionStatus.SUCCESS
        self._seconds += time.perf_counter() - started
        return AgentResponse(
            content=content, status=status, code_snippets=code, steps_taken=self._meter.calls
        )

    def row(self) -> AgentRow:
        """What this agent has cost so far."""
        meter = self._meter
        return AgentRow(
            name=self.name,
            calls=meter.calls,
            usage=meter.usage,
            prompt_bytes=meter.prompt_bytes,
            seconds=self._seconds,
        )


OFFLINE = ("urllib", "requests", "httpx", "socket", "subprocess")


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """One model for each agent; with a real one, the same for all three."""

    orchestrator: Model
    cleaner: Model
    analyst: Model


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTeam:
    """The agents and their runtimes, open as long as the team is."""

    orchestrator: NarratedAgent
    cleaner: NarratedAgent
    analyst: NarratedAgent
    runtimes: dict[str, PythonRuntime]

    @property
    def agents(self) -> tuple[NarratedAgent, ...]:
        return (self.orchestrator, self.cleaner, self.analyst)


@contextmanager
def open_team(models: Models, screen: Screen) -> Iterator[DemoTeam]:
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
            yield DemoTeam(orchestrator=orchestrator, cleaner=cleaner, analyst=analyst, runtimes=runtimes)


def load_raw() -> ObjectReference:
    """The data set as a reference. It is parsed in a jail that ends here; the value outlives it."""
    with PythonRuntime(variables=[Variable("csv", read_csv_bytes())]) as runtime:
        runtime.execute("import io, pandas\nraw = pandas.read_csv(io.BytesIO(csv))")
        return runtime.share("raw")
