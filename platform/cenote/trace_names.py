"""Names of spans and their attributes, in one place: OpenTelemetry's for generative AI, which still change, and ours.

The conventions for generative AI are marked as in development and have no release of their own: a later version of
this table follows them.
"""

from __future__ import annotations

from typing import Final

CONVENTIONS: Final = "gen-ai/1.42.0"
"""The version of the conventions that these names are from; each span's instrumentation scope has it."""

CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""`true` has prompts, answers, code, its names and results in spans. Without it, none of them is."""

# Operations, which are the first word of a span's name.
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION: Final = "gen_ai.operation.name"
AGENT_NAME: Final = "gen_ai.agent.name"
MODEL: Final = "gen_ai.request.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
ERROR_TYPE: Final = "error.type"
OTHER_ERROR: Final = "_OTHER"
"""The value of ERROR_TYPE for what is none of the kinds that are known."""
EXCEPTION_TYPE: Final = "exception.type"

RUNTIME: Final = "cenote.runtime.name"
STEP: Final = "cenote.step"
AUTHOR: Final = "cenote.step.author"
CAUSE: Final = "cenote.step.cause"
OUTCOME: Final = "cenote.cell.outcome"
CPU: Final = "cenote.cell.cpu_seconds"
PEAK_MEMORY: Final = "cenote.cell.peak_memory"
RERUN: Final = "cenote.rerun.count"
REUSED: Final = "cenote.reuse.count"
VARIABLE: Final = "cenote.variable"
STOP_REASON: Final = "cenote.agent.stop_reason"
STEPS: Final = "cenote.agent.steps"

PATCH: Final = "cenote.patch"
SHARE: Final = "cenote.share"
"""Names of spans that the conventions have no operation for."""
