"""Spans for OpenTelemetry, where the program has set up a tracer provider; else nothing, and nothing is imported.

Cenote uses the API alone. A program that traces has imported it and set a provider up, so whether it is among the
loaded modules is the whole question where it is not.

Names of spans and attributes are OpenTelemetry's for generative AI, and Cenote's own. The conventions for generative
AI are marked as in development and have no release of their own: a later version of these names follows them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

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


TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

MAX_CONTENT: Final = 64 * 2**10
"""Characters of one content in a span."""

Attribute = str | int | float | bool | list[str]


class TraceSpan:
    """Of one operation, from `begun` to `end`, which come from any thread. Without a provider it does nothing."""

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:
        self._span = span

    @property
    def recording(self) -> bool:
        span = self._span
        return span is not None and bool(span.is_recording())

    def set(self, name: str, value: Attribute | None) -> None:
        """None and empty texts are left out."""
        span = self._span
        if span is not None and value is not None and value != "":
            span.set_attribute(name, value)

    def content(self, name: str, text: str) -> None:
        """What a person, a model or a cell has written or computed: only where the operator asks for it."""
        span = self._span
        if span is not None and captures_content():
            span.set_attribute(name, text[:MAX_CONTENT])

    def end(self, error: str = "") -> None:
        """error: its kind, where the operation failed. Ending twice is fine."""
        span, self._span = self._span, None
        if span is None:
            return
        if error:
            from opentelemetry.trace import Status, StatusCode

            span.set_attribute(ERROR_TYPE, error)
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    @contextmanager
    def current(self) -> Iterator[None]:
        """What is begun inside is part of this."""
        span = self._span
        if span is None:
            yield
            return
        from opentelemetry.trace import use_span

        with use_span(span, record_exception=False, set_status_on_exception=False):
            yield

    @contextmanager
    def whole(self) -> Iterator[TraceSpan]:
        """As `current`, and ended after it, with the kind of an exception that passes."""
        try:
            with self.current():
                yield self
        except BaseException as error:
            self.end(type(error).__name__)
            raise
        self.end()


NO_SPAN: Final = TraceSpan()


def begun(name: str, attributes: Mapping[str, Attribute | None]) -> TraceSpan:
    """A part of what is current in this context. Attributes that are None or empty are left out."""
    tracer = _tracer()
    if tracer is None:
        return NO_SPAN
    given = {key: value for key, value in attributes.items() if value is not None and value != ""}
    return TraceSpan(tracer.start_span(name, attributes=given))


def current_trace() -> str:
    """The id of the trace that is current in this context, in hex; empty without one."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return ""
    context = api.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


def captures_content() -> bool:
    return os.environ.get(CONTENT_VARIABLE, "").strip().lower() in ("1", "true")


def carried() -> dict[str, str]:
    """What hands the current trace on to another process, as headers; empty without one."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


@contextmanager
def continued(headers: Mapping[str, str]) -> Iterator[None]:
    """What is begun inside is part of the trace that another process has handed on. headers: untrusted."""
    if _tracer() is None or TRACEPARENT not in headers:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    given = {name: headers[name] for name in (TRACEPARENT, TRACESTATE) if name in headers}
    token = context.attach(TraceContextTextMapPropagator().extract(given))
    try:
        yield
    finally:
        context.detach(token)


def _tracer() -> Any:
    """None where no spans are recorded."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return _tracer_of(provider)


@lru_cache(maxsize=1)
def _tracer_of(provider: Any) -> Any:
    return provider.get_tracer("cenote", version("cenote"), attributes={"cenote.conventions": CONVENTIONS})
