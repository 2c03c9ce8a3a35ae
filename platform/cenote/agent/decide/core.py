"""What an agent decides. No I/O, no clock: commands go out, happenings come in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from cenote.agent.decide.cell import CellFlow, CellSettings
from cenote.agent.decide.compaction import Compaction, CompactionPolicy
from cenote.agent.decide.limits import MAX_REPEATS, Bounds, RunLedger, RunStoppedError
from cenote.agent.decide.patch import PatchRunner
from cenote.agent.decide.turn import TurnTaker
from cenote.agent.parse.patch_block import LANGUAGE
from cenote.agent.prompt import prompts
from cenote.agent.prompt.cell_reports import BlockExchange
from cenote.agent.prompt.patch_reports import FirstNumbers
from cenote.agent.prompt.system_prompt import PromptParts, changes_since, system_prompt
from cenote.agent.vocabulary.commands import DescribeRuntime, Emit, Flow, RuntimeDescription, ask
from cenote.agent.vocabulary.conversation import Conversation, ConversationEntry, Counter, Kind, from_messages
from cenote.agent.vocabulary.events import EventType, news
from cenote.agent.vocabulary.response import AgentResponse, ExecutionStatus, StopReason
from cenote.models.errors import ModelError
from cenote.models.messages import Message
from cenote_security.errors import UsageError

MIN_HISTORY = 4

MIN_WINDOW = 1000
DEFAULT_WINDOW = 128_000
"""Tokens of the context window, where neither its user nor the model's server says how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """The numbers and texts that decisions depend on. See `CaveAgent`."""

    prompt: PromptParts = field(default_factory=PromptParts)
    has_skills: bool = False
    max_steps: int = 10
    max_history: int | None = None
    max_exec_output: int = 8000
    exec_output_preview: int | None = None
    context_window: int = DEFAULT_WINDOW
    namespace_delta: bool = False
    has_labels: bool = False
    max_rollbacks: int = 0
    patches: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    stops_on_model_error: bool = False
    compaction: CompactionPolicy = field(default_factory=CompactionPolicy)

    def __post_init__(self) -> None:
        least = {"max_steps": 1, "max_rollbacks": 0, "max_exec_output": 100, "context_window": MIN_WINDOW}
        for name, minimum in least.items():
            given = getattr(self, name)
            if not isinstance(given, int) or given < minimum:
                raise UsageError(f"{name} must be at least {minimum}, not {given!r}")
        preview = self.exec_output_preview
        if preview is not None and (not isinstance(preview, int) or preview < 100):
            raise UsageError(f"exec_output_preview must be at least 100 or None, not {preview!r}")
        if self.max_history is not None and not (
            isinstance(self.max_history, int) and self.max_history >= MIN_HISTORY
        ):
            raise UsageError(
                f"max_history must be at least {MIN_HISTORY} (system prompt, task, block, output) or None, "
                f"not {self.max_history!r}"
            )


class AgentCore:
    """The conversation of one agent, over as many runs as its owner starts."""

    def __init__(
        self, settings: CoreSettings, count: Callable[[str], int], messages: Sequence[Message] = ()
    ) -> None:
        self._settings = settings
        self._count = count
        counter = Counter(count=count)
        self._conversation = Conversation(counter, from_messages(messages), settings.max_history)
        self._compaction = Compaction(
            self._conversation, counter, settings.context_window, settings.bounds, settings.compaction
        )
        languages = [settings.prompt.python_block_identifier, *([LANGUAGE] if settings.patches else [])]
        self._turns = TurnTaker(self._conversation, self._compaction, counter, settings.bounds, *languages)
        cells = CellSettings(
            namespace_delta=settings.namespace_delta,
            has_skills=settings.has_skills,
            has_labels=settings.has_labels,
            max_rollbacks=settings.max_rollbacks,
            patch_hint=settings.prompt.patch_hint if settings.patches else "",
        )
        self._exchange = BlockExchange(
            self._conversation, settings.max_exec_output, settings.exec_output_preview
        )
        self._exchange.number_on(_blocks_in(self._conversation.entries))
        numbers = FirstNumbers()
        self._cells = CellFlow(self._exchange, cells, numbers)
        self._patches = PatchRunner(self._exchange, numbers, self._cells)
        self._said = ""  # the last that the model has said in this run
        self._found: frozenset[str] | None = None  # names that were there when the first task began
        self._known = ""
        """The system prompt as it would be now: what the model has been told since is in the conversation."""
        self._first: ConversationEntry | None = None
        """What the conversation began with then. Where that is gone, so may be what the model has been told."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as the model gets it, system prompt first once a run has begun."""
        return self._conversation.messages()

    @property
    def transcript(self) -> tuple[Message, ...]:
        """The conversation in its parts, each a message of its own, with its kind."""
        return self._conversation.transcript()

    def system_prompt(self, scene: RuntimeDescription, now: datetime) -> str:
        """What a first task would begin with in this runtime."""
        return system_prompt(self._settings.prompt, scene, now)

    def resume(self, messages: Sequence[Message]) -> None:
        """Goes on with another conversation, whose blocks have numbers after those of this one."""
        self._conversation.system, self._conversation.entries = "", ()
        self._conversation.add(*from_messages(messages, self._exchange.blocks))
        self._exchange.number_on(max(self._exchange.blocks, _blocks_in(self._conversation.entries)))
        self._known, self._first = "", None

    def add_message(self, message: Message) -> None:
        """Goes on with what a caller has said between tasks. A system message takes the place of the prompt until
        the next task begins."""
        if message.role == "system":
            self._conversation.system = message.content
            return
        entries = from_messages([message], self._exchange.blocks)
        self._exchange.number_on(max(self._exchange.blocks, _blocks_in(entries)))
        self._conversation.add(*entries)

    def fit(self, window: int) -> None:
        """The model's context window has so many tokens."""
        self._settings = replace(self._settings, context_window=window)
        self._compaction.fit(window)

    def branch(self) -> AgentCore:
        """A copy that goes its own way: the same settings, and what was said so far."""
        branch = AgentCore(self._settings, self._count)
        branch._conversation.system = self._conversation.system
        branch._conversation.entries = self._conversation.entries
        branch._found, branch._known, branch._first = self._found, self._known, self._first
        branch._exchange.number_on(self._exchange.blocks)
        return branch

    def run(self, task: str, now: datetime, name: str = "") -> Flow[AgentResponse]:
        """Do a task. Raises what the model raises, where asking again is no use; the conversation stays.

        name: of this run, for the history of the runtime.
        """
        ledger = RunLedger(name)
        self._said = ""
        try:
            yield from self._begin(task, now)
            return (yield from self._work(ledger))
        except GeneratorExit:
            self._close_task(prompts.CANCELLED)
            raise
        except RunStoppedError as end:
            return (yield from self._stop(self._said, end.reason, ledger))
        except ModelError as error:
            if not self._settings.stops_on_model_error:
                self._close_task(prompts.STOPPED.format(reason=StopReason.MODEL_ERROR.value))
                raise
            failure = f"{type(error).__name__}: {error}"
            return (yield from self._stop(self._said, StopReason.MODEL_ERROR, ledger, failure))

    def _begin(self, task: str, now: datetime) -> Flow[None]:
        scene = yield from ask(DescribeRuntime(), RuntimeDescription)
        if self._found is None:
            self._found = frozenset(info.name for info in scene.described)
        self._set(
            ConversationEntry(kind=Kind.TASK, text=task),
            system_prompt(self._settings.prompt, scene, now, self._found),
        )
        self._cells.begin(scene)

    def _work(self, ledger: RunLedger) -> Flow[AgentResponse]:
        repeats: list[tuple[str, ...]] = []
        for left in reversed(range(self._settings.max_steps)):
            ledger.open_step()
            yield from self._compaction.make_room(ledger)
            turn = yield from self._turns.take(ledger)
            self._said = turn.text
            if turn.stop is not StopReason.COMPLETED:
                return (yield from self._finish(turn.text, turn.stop, ledger))
            if turn.code is None:
                return (yield from self._finish(turn.text, StopReason.COMPLETED, ledger))
            note = prompts.LAST_TURN if left == 1 else ""
            reply = yield from self._act(turn.text, turn.code, ledger, note, is_patch=turn.is_patch)
            if reply is not None:
                return (yield from self._finish(reply, StopReason.COMPLETED, ledger))
            outcome = (turn.code, *self._exchange.outcome)
            repeats = [*repeats, outcome] if outcome in repeats[-1:] else [outcome]
            if len(repeats) == MAX_REPEATS - 1:
                self._conversation.add(ConversationEntry(kind=Kind.NOTE, text=prompts.REPEATED))
            if len(repeats) == MAX_REPEATS and left:
                return (yield from self._stop(self._said, StopReason.LOOPING, ledger))
        yield Emit(news(EventType.MAX_STEPS_REACHED, self._said))
        return (yield from self._stop(self._said, StopReason.MAX_STEPS, ledger))

    def _set(self, task: ConversationEntry, prompt: str) -> None:
        """The model knows what is there by its system prompt; before a further task it is told what has changed."""
        entries = self._conversation.entries
        is_longer = bool(entries) and entries[0] is self._first
        changes = changes_since(self._known, prompt) if is_longer else None
        if changes is None:
            self._conversation.system = prompt
        hint = self._cells.patch_hint() if self._exchange.blocks else ""
        notes = [ConversationEntry(kind=Kind.NOTE, text=text) for text in (changes, hint) if text]
        self._conversation.add(*notes, task)
        self._known, self._first = prompt, self._conversation.entries[0]

    def _act(
        self, answer: str, block: str, ledger: RunLedger, note: str, *, is_patch: bool
    ) -> Flow[str | None]:
        """Do what the answer's block says; gives the text of `reply(...)`, or None. note: for the model, as well."""
        if is_patch:
            ledger.book_patch(block)
            return (yield from self._patches.run(answer, block, ledger, note))
        ledger.book_code(block)
        return (yield from self._cells.run(answer, block, ledger, note))

    def _finish(self, content: str, reason: StopReason, ledger: RunLedger) -> Flow[AgentResponse]:
        """The model's last words, whether they are a whole answer or what there is of one."""
        content = content.strip()
        if content:
            self._conversation.add(ConversationEntry(kind=Kind.ANSWER, text=content))
        else:
            self._close_task(prompts.STOPPED.format(reason=reason.value))
        yield Emit(news(EventType.FINAL_RESPONSE, content))
        return self._response(content, reason, ledger)

    def _stop(
        self, content: str, reason: StopReason, ledger: RunLedger, failure: str = ""
    ) -> Flow[AgentResponse]:
        """The run ends without an answer."""
        yield from ()
        self._close_task(prompts.STOPPED.format(reason=reason.value))
        return self._response(content, reason, ledger, failure)

    def _close_task(self, note: str) -> None:
        """Says in the conversation how a task ended that has no answer: the next one is not a part of it."""
        entries = self._conversation.entries
        if entries and entries[-1].role == "user":
            self._conversation.add(ConversationEntry(kind=Kind.ANSWER, text=note))

    def _response(
        self, content: str, reason: StopReason, ledger: RunLedger, failure: str = ""
    ) -> AgentResponse:
        return AgentResponse(
            content=content,
            code_snippets=list(ledger.code_snippets),
            status=_STATUS.get(reason, ExecutionStatus.INCOMPLETE),
            steps_taken=len(ledger.steps),
            max_steps=self._settings.max_steps,
            token_usage=ledger.total,
            steps=ledger.steps,
            stop_reason=reason,
            model_error=failure,
        )


def _blocks_in(entries: Sequence[ConversationEntry]) -> int:
    return max((entry.cell for entry in entries), default=0)


_STATUS = {
    StopReason.COMPLETED: ExecutionStatus.SUCCESS,
    StopReason.MAX_STEPS: ExecutionStatus.MAX_STEPS_REACHED,
}
