"""What an agent tells its caller while it works."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EventType(Enum):
    """What kind of news an event is; see `Event.content` for what comes with it."""

    TEXT = "text"
    CODE = "code"
    EXECUTION_OUTPUT = "execution_output"
    EXECUTION_ERROR = "execution_error"
    EXECUTION_OUTPUT_EXCEEDED = "execution_output_exceeded"
    SECURITY_ERROR = "security_error"
    PATCH = "patch"
    COMPACTING = "compacting"
    COMPACTED = "compacted"
    FINAL_RESPONSE = "final_response"
    MAX_STEPS_REACHED = "max_steps_reached"


@dataclass(frozen=True, slots=True)
class Event:
    """One piece of news.

    content: by type:
        text: a piece of the model's prose, as it is written; an answer that had to be asked for again comes again.
        code: the whole code of one block, before it is checked and run.
        execution_output, execution_error, execution_output_exceeded: what the model is shown of the block's run;
            when it exceeded `max_exec_output`, that is head and tail. A run that exceeded and failed gives two.
        security_error: the violated rules, one a line; the code did not run.
        patch: the whole text of a patch block, before it is planned; what came of it follows as that of a block does.
        compacting, compacted: how full the context window is; what was done, and the tokens before and after.
        final_response: the answer. max_steps_reached: the last thing the model said.
    """

    type: EventType
    content: str
