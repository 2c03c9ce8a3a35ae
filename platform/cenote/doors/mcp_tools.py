"""What an MCP client can do with runtimes: each tool's arguments, its description for a model, and its work.

Results are texts for a model, and pictures. A tool that fails raises a CenoteError, whose text says what to do next.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cenote.agent.prompt import patch_reports
from cenote.agent.prompt.observation import NOTHING, aftermath, observe, shown
from cenote.doors.http_models import bad_arguments
from cenote.doors.open_runtimes import Door, OpenRuntime
from cenote.harness import ExecutionState, Patch
from cenote.harness.record.step import Step
from cenote.runtime import AsyncFiles
from cenote.runtime.inject.injectables import check_name
from cenote_security.errors import NotKeptError, UsageError
from cenote_security.printable import printable
from cenote_worker.execution.results import ExecutionResult, StreamName, VariableInfo

DEFAULT_RUNTIME: Final = "main"

MOST_CHARACTERS: Final = 8_000
"""Of a result: more costs a model more than requesting the part that it wants."""

MOST_IMAGES: Final = 4
MOST_IMAGE_BYTES: Final = 2 * 1024 * 1024
"""Pictures of one result, and the size of each: clients refuse much larger messages."""

PNG: Final = b"\x89PNG\r\n\x1a\n"
"""How each picture begins. Clients refuse a whole conversation with one that is none."""

_STEP_LINE: Final = 80


@dataclass(frozen=True, slots=True)
class Answer:
    """text: for the model. images: PNG. failed: the code raised, so that the client shows it as an error."""

    text: str
    images: tuple[bytes, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call. hear: called with what a cell prints while it runs."""

    runtimes: Door
    hear: Callable[[StreamName, str], None]

    async def runtime(self, name: str) -> OpenRuntime:
        """The runtime of that name; the default one is opened by its first use."""
        if name == DEFAULT_RUNTIME:
            return await self.runtimes.open(name)
        return await self.runtimes.get(name)


class Tool(BaseModel):
    """A tool is its arguments: its docstring is what a model reads, and `run` does it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ClassVar[str]
    reads_only: ClassVar[bool] = False
    destroys: ClassVar[bool] = False

    runtime: str = DEFAULT_RUNTIME

    async def run(self, call: ToolCall) -> Answer:
        """Runs the tool. Raises CenoteError."""
        raise NotImplementedError

    @classmethod
    @cache
    def input_schema(cls) -> dict[str, Any]:
        """The JSON Schema of its arguments, in as few tokens as possible: a client pays them in each conversation.

        Made once, as the protocol's library reads it at each call. It is not to be changed.
        """
        schema = cls.model_json_schema(schema_generator=_ShortSchema)
        schema.pop("description", None)
        return schema

    @classmethod
    def description(cls) -> str:
        return " ".join((cls.__doc__ or "").split())

    @classmethod
    def parse(cls, arguments: dict[str, Any]) -> Tool:
        """Raises UsageError with all that is wrong."""
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            raise bad_arguments(f"the arguments of {cls.name} do", error) from None


class _ShortSchema(GenerateJsonSchema):
    """Without titles, and without the null of optional fields."""

    def field_title_should_be_set(self, _schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


class OpenTool(Tool):
    """Open a further runtime: a sandboxed Python namespace with files of its own. `main` needs no opening."""

    name = "open"

    async def run(self, call: ToolCall) -> Answer:
        opened = await call.runtimes.open(self.runtime)
        others = [each.name for each in await call.runtimes.listed() if each.name != self.runtime]
        names = _variables(await opened.author.describe())
        return Answer(
            f"{self.runtime} is open. {names}" + (f"\nOthers: {', '.join(others)}" if others else "")
        )


class RunCodeTool(Tool):
    """Run Python. Variables, imports and files stay for later calls. The last expression is shown; keep data in
    variables, print little (`show(x)` is compact)."""

    name = "run"
    code: str
    timeout: Annotated[float | None, Field(gt=0, description="seconds")] = None

    async def run(self, call: ToolCall) -> Answer:
        runtime = await call.runtime(self.runtime)
        result = await runtime.author.execute(self.code, self.timeout, call.hear)
        return _cell(result, self.code)


class InspectTool(Tool):
    """List variables: type, shape, size; no values."""

    name = "inspect"
    reads_only = True

    async def run(self, call: ToolCall) -> Answer:
        runtime = await call.runtime(self.runtime)
        return Answer(_cut(_variables(await runtime.author.describe())))


class ReadTool(Tool):
    """Show a part of a variable: `count` rows, items or lines of a text, from `start` on."""

    name = "read"
    variable: Annotated[str, Field(description="or an expression")]
    start: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1)] = 20

    async def run(self, call: ToolCall) -> Answer:
        runtime = await call.runtime(self.runtime)
        expression = self.variable.strip()
        _check_expression(expression)
        code = f"show({expression}, start={self.start}, rows={self.count})"
        return _cell(await runtime.author.execute(code), code)


class FilesTool(Tool):
    """List, read, write or delete files of the working directory. Writing makes folders, and replaces."""

    name = "files"
    destroys = True
    action: Literal["list", "read", "write", "delete"]
    path: str = ""
    text: str | None = None
    offset: Annotated[int, Field(ge=0, description="byte to read from")] = 0

    async def run(self, call: ToolCall) -> Answer:
        files = (await call.runtime(self.runtime)).author.files
        if self.action != "list" and not self.path:
            raise UsageError(f"name the file to {self.action}: `path` is missing")
        if self.action == "write":
            if self.text is None:
                raise UsageError("give the file's content as `text`; for bytes, `run` code that writes them")
            await files.write(self.path, self.text, overwrite=True)
            return Answer(f"{len(self.text.encode()):,} bytes are in {self.path}")
        if self.action == "delete":
            await files.delete(self.path)
            return Answer(f"{self.path} is deleted")
        if self.action == "read":
            return await self._read(files)
        listing = await files.list(self.path)
        lines = [f"{entry.name}{'/' if entry.kind == 'folder' else f' {entry.size:,}'}" for entry in listing]
        return Answer(_cut("\n".join([*lines, *([] if listing.complete else ["... and more"])]) or "(empty)"))

    async def _read(self, files: AsyncFiles) -> Answer:
        whole = (await files.stat(self.path)).size
        if self.path.lower().endswith(".png") and whole <= MOST_IMAGE_BYTES and not self.offset:
            picture: bytes = await files.read(self.path)
            if picture.startswith(PNG):
                return Answer(self.path, images=(picture,))
        data: bytes = await files.read(self.path, self.offset, MOST_CHARACTERS)
        end = self.offset + len(data)
        rest = f"\n[{whole - end:,} bytes follow; offset={end} reads on]" if end < whole else ""
        try:
            text = shown(data.decode(errors="ignore" if rest else "strict"))
        except UnicodeDecodeError:
            text = f"{self.path} is no text; as base64: {base64.b64encode(data[:1_000]).decode()} ..."
        return Answer(text + rest)


class CommandTool(Tool):
    """Run a shell command beside the namespace, in the same sandbox and working directory."""

    name = "shell"
    command: str
    timeout: Annotated[float, Field(gt=0, description="seconds")] = 120

    async def run(self, call: ToolCall) -> Answer:
        runtime = (await call.runtime(self.runtime)).author
        ended = await runtime.run(self.command, timeout=self.timeout, max_output=4 * MOST_CHARACTERS)
        code = (
            f"exit code {ended.exit_code}" if ended.exit_code is not None else f"ended by {ended.killed_by}"
        )
        parts = [ended.stdout, ended.stderr, "" if ended.success else code]
        text = "\n".join(part.rstrip("\n") for part in parts if part.strip())
        return Answer(_cut(shown(text)) or NOTHING, failed=not ended.success)


class CheckpointTool(Tool):
    """Keep the state under a label that `rollback` can return to. States of recent steps are kept anyway."""

    name = "checkpoint"
    label: Annotated[str, Field(min_length=1)]

    async def run(self, call: ToolCall) -> Answer:
        kept = await (await call.runtime(self.runtime)).author.snapshot(self.label)
        return Answer(f"the state after step {kept.step} is kept as {self.label!r}")


class RollBackTool(Tool):
    """Return to the state after a step, or of a checkpoint: variables, files, everything."""

    name = "rollback"
    destroys = True
    to: int | str

    async def run(self, call: ToolCall) -> Answer:
        runtime = await call.runtime(self.runtime)
        to = self.to
        if isinstance(to, str) and to.isdecimal():
            labels = {each.label for each in await runtime.owner.snapshots()}
            to = to if to in labels else int(to)
        try:
            back = await runtime.owner.rollback(to)
        except NotKeptError as error:
            kept = [f"{each.step} {each.label}".strip() for each in await runtime.owner.snapshots()]
            raise UsageError(
                f"the state of {error.target!r:.100} is not kept; kept are {', '.join(kept)}"
            ) from None
        lost = [f"of no use any more: {', '.join(back.severed)}"] if back.severed else []
        return Answer("; ".join([f"back at the end of step {back.step}", *lost, *back.amiss]))


class ForkTool(Tool):
    """Open a runtime that begins with this one's state, to try something."""

    name = "fork"
    branch: Annotated[str, Field(description="its name")]
    step: int | None = None
    partial: Annotated[bool, Field(description="without what cannot be copied")] = False

    async def run(self, call: ToolCall) -> Answer:
        await call.runtime(self.runtime)
        branch = await call.runtimes.fork(self.runtime, self.branch, self.step, partial=self.partial)
        carried = branch.owner.carried
        unlike = (*carried.missing, *carried.differing) if carried is not None else ()
        return Answer("\n".join([f"{self.branch} is open", *unlike]))


class MergeTool(Tool):
    """Take over what a fork has changed."""

    name = "merge"
    branch: str
    names: Annotated[list[str] | None, Field(description="default: all")] = None
    on_conflict: Literal["refuse", "theirs", "ours"] = "refuse"

    async def run(self, call: ToolCall) -> Answer:
        into, branch = await call.runtime(self.runtime), await call.runtimes.get(self.branch)
        merged = await into.owner.merge(branch.owner, self.names, self.on_conflict)
        parts = {
            "taken": merged.taken,
            "deleted": merged.deleted,
            "both changed": merged.conflicts,
            "files": merged.files,
            "states": merged.states,
            "left": [f"{name} ({why})" for name, why in merged.left.items()],
        }
        lines = [f"{what}: {', '.join(names)}" for what, names in parts.items() if names]
        return Answer("\n".join([*lines, *merged.notes]) or "there was nothing to take over")


class ShareTool(Tool):
    """Give a variable to another open runtime, without its value passing through here."""

    name = "share"
    variable: str
    to: str
    new_name: str | None = None

    async def run(self, call: ToolCall) -> Answer:
        giver, taker = await call.runtime(self.runtime), await call.runtimes.get(self.to)
        name = self.new_name or self.variable
        check_name(name, "variable")
        reference = await giver.author.share(self.variable)
        await taker.put(name, reference)
        return Answer(f"{self.to} has {self.variable} as {name}")


class HistoryTool(Tool):
    """List the last steps; with a variable: which step made it, and what depends on it."""

    name = "history"
    reads_only = True
    variable: str | None = None
    last: Annotated[int, Field(ge=1, le=200)] = 20

    async def run(self, call: ToolCall) -> Answer:
        state = await (await call.runtime(self.runtime)).state()
        if self.variable is not None:
            return Answer(_cut(_origin(state, self.variable)))
        steps = state.steps
        lines = [_step_line(step) for step in steps[-self.last :]]
        if len(steps) > len(lines):
            earlier = len(steps) - len(lines)
            lines.insert(0, f"({earlier} earlier step{'' if earlier == 1 else 's'})")
        return Answer(_cut("\n".join(lines) or "(no steps)"))


class PatchStepTool(Tool):
    """Replace the code of an earlier step, and run again only what depends on it. Without `apply` it says what would
    run."""

    name = "patch"
    destroys = True
    step: int
    code: str
    apply: bool = False

    async def run(self, call: ToolCall) -> Answer:
        runtime = await call.runtime(self.runtime)
        state = await runtime.state()
        before = [step.record for step in state.line(state.head)]
        plan = await state.plan(Patch.replace_step(self.step, self.code, author=runtime.author.author))
        if not self.apply:
            return Answer(_cut(shown(plan.explain())))
        result = await state.apply(plan)
        numbers = patch_reports.FirstNumbers()
        numbers.learn((*before, *result.records))
        refusal = patch_reports.refusal(result, numbers)
        text = "\n".join([refusal or patch_reports.report(before, result, numbers).whole, *result.notes])
        return Answer(_cut(shown(text)), failed=bool(refusal))


class CloseTool(Tool):
    """End a runtime. Its variables and files are gone."""

    name = "close"
    destroys = True

    async def run(self, call: ToolCall) -> Answer:
        await call.runtimes.end(self.runtime)
        return Answer(f"{self.runtime} is closed")


TOOLS: Final[dict[str, type[Tool]]] = {
    tool.name: tool
    for tool in (
        OpenTool, RunCodeTool, InspectTool, ReadTool, FilesTool, CommandTool, CheckpointTool,
        RollBackTool, ForkTool, MergeTool, ShareTool, HistoryTool, PatchStepTool, CloseTool,
    )
}  # fmt: skip


# -- texts for a model --


def variable_line(info: VariableInfo) -> str:
    """`df: DataFrame (344, 8), 48,000 bytes; species str, year int`."""
    shape = f" {info.shape}" if info.shape is not None else ""
    about = f"; {info.description}" if info.description else ""
    return printable(f"{info.name}: {info.type}{shape}, {info.size:,} bytes{about}")


def _variables(found: Sequence[VariableInfo]) -> str:
    return "\n".join(map(variable_line, found)) if found else "(no variables)"


def _cell(result: ExecutionResult, code: str) -> Answer:
    seen = observe(result, code)
    error = f"Error: {seen.error}" if seen.error else ""
    parts = [_cut(seen.output), error, result.reply or "", *aftermath(result)]
    text = "\n".join(part for part in parts if part)
    return Answer(text or NOTHING, _pictures(result), failed=not result.success)


def _pictures(result: ExecutionResult) -> tuple[bytes, ...]:
    found = [picture for bundle in result.outputs if isinstance(picture := bundle.get("image/png"), bytes)]
    sound = [each for each in found if len(each) <= MOST_IMAGE_BYTES and each.startswith(PNG)]
    return tuple(sound[:MOST_IMAGES])


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    head, tail = MOST_CHARACTERS * 3 // 5, MOST_CHARACTERS * 2 // 5
    gap = f"[... {len(text) - head - tail:,} characters left out; `read` shows parts of a variable]"
    return f"{text[:head]}\n{gap}\n{text[-tail:]}"


def _step_line(step: Step) -> str:
    first, _, more = (step.code.strip() or f"({step.kind} {', '.join(step.names)})").partition("\n")
    code = first[:_STEP_LINE] + (" ..." if more or len(first) > _STEP_LINE else "")
    by = f" by {step.author}" if step.author else ""
    names = [name for name in step.writes if name != "_"]
    writes = f"  -> {', '.join(names)}" if names else ""
    return printable(f"{step.number}{by} {step.status}: {code}{writes}")


def _origin(state: ExecutionState, variable: str) -> str:
    found = state.blame(variable)
    lines = [f"{variable} was there before the first step"]
    if found.step is not None:
        done = "deleted" if found.deleted else "written"
        lines = [
            f"{variable} was last {done} in step {_step_line(found.step)}",
            printable(found.statement, lines=True),
        ]
    if found.doubtful:
        lines.append(f"Steps that may have changed it: {', '.join(map(str, found.doubtful))}")
    depends = state.dependents(variable)
    lines.append(f"Steps that depend on it: {', '.join(map(str, depends.steps)) or 'none'}")
    if depends.symbols:
        lines.append(f"Made from it: {', '.join(depends.symbols)}")
    if depends.doubtful:
        lines.append(f"Steps that may depend on it: {', '.join(map(str, depends.doubtful))}")
    return "\n".join(line for line in lines if line)


# -- what tools share --


def _check_expression(text: str) -> None:
    try:
        compile(text, "<variable>", "eval")
    except (SyntaxError, ValueError):
        raise UsageError(f"`variable` is a name or an expression, not {text!r:.100}") from None
