"""What an agent decides. No I/O, no clock: commands go out, happenings come in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cenote.agent import prompts
from cenote.agent.cell import CellRunner, CellSettings
from cenote.agent.compaction import Compaction
from cenote.agent.conversation import Conversation, Counter
from cenote.agent.events import Event, EventType
from cenote.agent.exchange import Exchange
from cenote.agent.flow import Emit, Flow, Look, Scene, ask
from cenote.agent.history import Entry, Kind, from_messages
from cenote.agent.ledger import Ledger
from cenote.agent.patch_block import LANGUAGE
from cenote.agent.patching import PatchRunner
from cenote.agent.response import AgentResponse, ExecutionStatus
from cenote.agent.system_prompt import PromptParts, changes_since, system_prompt
from cenote.agent.turn import TurnTaker
from cenote.models.messages import Message
from cenote_security.errors import UsageError

MIN_HISTORY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """The numbers and texts that decisions depend on. See `CaveAgent`."""

    prompt: PromptParts = field(default_factory=PromptParts)
    has_skills: bool = False
    max_steps: int = 10
    max_history: int | None = None
    max_exec_output: int = 8000
    context_window: int = 128_000
    namespace_delta: bool = False
    has_labels: bool = False
    max_rollbacks: int = 0
    patches: bool = False

    def __post_init__(self) -> None:
        least = {"max_steps": 1, "max_rollbacks": 0, "max_exec_output": 100, "context_window": 1000}
        for name, minimum in least.items():
            given = getattr(self, name)
            if not isinstance(given, int) or given < minimum:
                raise UsageError(f"{name} must be at least {minimum}, not {given!r}")
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
        self._compaction = Compaction(self._conversation, counter, settings.context_window)
        languages = [settings.prompt.python_block_identifier, *([LANGUAGE] if settings.patches else [])]
        self._turns = TurnTaker(self._conversation, self._compaction, counter, *languages)
        cells = CellSettings(
            namespace_delta=settings.namespace_delta,
            has_skills=settings.has_skills,
            has_labels=settings.has_labels,
            max_rollbacks=settings.max_rollbacks,
            patches=settings.patches,
        )
        self._exchange = Exchange(self._conversation, settings.max_exec_output)
        self._cells = CellRunner(self._exchange, cells)
        self._patches = PatchRunner(self._exchange)
        self._found: frozenset[str] | None = None  # names that were there when the first task began
        self._known = ""
        """The system prompt as it would be now: what the model has been told since is in the conversation."""
        self._first: Entry | None = None
        """What the conversation began with then. Where that is gone, so may be what the model has been told."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as the model gets it, system prompt first once a run has begun."""
        return self._conversation.messages()

    def branch(self) -> AgentCore:
        """A copy that goes its own way: the same settings, and what was said so far."""
        branch = AgentCore(self._settings, self._count)
        branch._conversation.system = self._conversation.system
        branch._conversation.entries = self._conversation.entries
        branch._found, branch._known, branch._first = self._found, self._known, self._first
        branch._exchange.number_on(self._exchange)
        return branch

    def run(self, task: str, now: datetime, name: str = "") -> Flow[AgentResponse]:
        """Do a task. Raises what the model raises, where asking again is no use; the conversation stays.

        name: of this run, for the history of the runtime.
        """
        scene = yield from ask(Look(), Scene)
        if self._found is None:
            self._found = frozenset(info.name for info in scene.described)
        self._set(
            Entry(kind=Kind.TASK, text=task), system_prompt(self._settings.prompt, scene, now, self._found)
        )
        self._cells.begin(scene)
        ledger = Ledger(name)
        said = ""
        for left in reversed(range(self._settings.max_steps)):
            ledger.open_step()
            yield from self._compaction.make_room(ledger)
            turn = yield from self._turns.take(ledger)
            said = turn.text
            if turn.code is None:
                status = ExecutionStatus.SUCCESS if turn.complete else ExecutionStatus.INCOMPLETE
                return (yield from self._finish(said, status, ledger))
            reply = yield from self._act(turn.text, turn.code, ledger, left, is_patch=turn.is_patch)
            if reply is not None:
                return (yield from self._finish(reply, ExecutionStatus.SUCCESS, ledger))
        yield Emit(Event(EventType.MAX_STEPS_REACHED, said))
        return self._response(said, ExecutionStatus.MAX_STEPS_REACHED, ledger)

    def _set(self, task: Entry, prompt: str) -> None:
        """The model knows what is there by its system prompt; before a further task it is told what has changed."""
        entries = self._conversation.entries
        is_longer = bool(entries) and entries[0] is self._first
        changes = changes_since(self._known, prompt) if is_longer else None
        if changes is None:
            self._conversation.system = prompt
        news = [Entry(kind=Kind.NOTE, text=changes)] if changes else []
        self._conversation.add(*news, task)
        self._known, self._first = prompt, self._conversation.entries[0]

    def _act(self, answer: str, block: str, ledger: Ledger, left: int, *, is_patch: bool) -> Flow[str | None]:
        """Do what the answer's block says; gives the text of `reply(...)`, or None. left: turns after this one."""
        note = prompts.LAST_TURN if left == 1 else ""
        if is_patch:
            ledger.book_patch(block)
            return (yield from self._patches.run(answer, block, ledger, note))
        ledger.book_code(block)
        return (yield from self._cells.run(answer, block, ledger, note))

    def _finish(self, content: str, status: ExecutionStatus, ledger: Ledger) -> Flow[AgentResponse]:
        content = content.strip()
        if content:
            self._conversation.add(Entry(kind=Kind.ANSWER, text=content))
        yield Emit(Event(EventType.FINAL_RESPONSE, content))
        return self._response(content, status, ledger)

    def _response(self, content: str, status: ExecutionStatus, ledger: Ledger) -> AgentResponse:
        return AgentResponse(
            content=content,
            code_snippets=list(ledger.code_snippets),
            status=status,
            steps_taken=len(ledger.steps),
            max_steps=self._settings.max_steps,
            token_usage=ledger.total,
            steps=ledger.steps,
        )
