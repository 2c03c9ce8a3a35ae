"""`cenote.cave_agent` has the public names of the CaveAgent library 0.8.0, and costs nothing until they are used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import cenote
from cenote import cave_agent, models, runtime, security, skills

NAMES = (
    "AgentResponse AssistantMessage AttributeRule BaseRuntime CaveAgent CodeEvent "
    "CodeExecutionMessage Compactor Event ExecutionResultEvent ExecutionResultMessage "
    "ExecutionTimeoutEvent FinalResponseEvent Function FunctionRule ImportRule IPyKernelRuntime "
    "IPythonRuntime LiteLLMModel Message MessageRole Model ModelError ModelResponse OpenAIModel "
    "PreemptibleRuntime PromptTooLongError ProviderBillingError ProviderError RegexRule Runtime "
    "RuntimeExecutionError SecurityChecker SecurityError SecurityErrorEvent SecurityRule "
    "SecurityViolation Skill SkillDiscovery SkillRegistry StatusEvent StatusType StoppedEvent "
    "StopReason StreamStalledError SummaryAcknowledgementMessage SummaryMessage SystemMessage "
    "TextEvent ThinkingChunkEvent ThinkingEvent TokenUsage Type UserMessage UserPromptEvent Variable"
)

MODULES = {
    "models": "StreamDelta StreamResponse is_billing_exhausted is_context_length_exceeded stream_with_idle_timeout",
    "runtime": "ErrorFeedbackMode ExecutionResult RuntimeStateLostError",
    "compaction": "DEFAULT_CONTEXT_WINDOW TokenAnchor compact_threshold default_token_estimate estimate_tokens "
    "tiktoken_estimator",
    "messages": "to_wire",
    "agent": "drain_to_response",
}


def test_all_names_of_the_library_are_there() -> None:
    """The package's names, sorted like ours; each can be loaded."""
    assert sorted(NAMES.split(), key=str.casefold) == cave_agent.__all__
    assert [] == [name for name in NAMES.split() if not hasattr(cave_agent, name)]


@pytest.mark.parametrize(("module", "names"), MODULES.items())
def test_names_of_its_modules_are_there(module: str, names: str) -> None:
    """Names that only a module of it exports."""
    there = importlib.import_module(f"cenote.cave_agent.{module}")
    assert [] == [name for name in names.split() if not hasattr(there, name)]


def test_what_is_of_use_to_all_is_in_cenote_itself() -> None:
    """The names are Cenote's own objects, not copies."""
    assert cenote.IPythonRuntime is cave_agent.IPythonRuntime is runtime.IPythonRuntime
    assert cenote.SecurityChecker is cave_agent.SecurityChecker is security.SecurityChecker
    assert cenote.Skill is cave_agent.Skill is skills.Skill
    assert cenote.Message is models.Message
    assert [] == [name for name in cenote.__all__ if not hasattr(cenote, name)]


def test_importing_it_loads_nothing_of_it() -> None:
    """Scripts that only need one name do not wait for all of them."""
    code = "import sys, cenote.cave_agent; print(*[m for m in sys.modules if m.startswith('cenote.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ["cenote.cave_agent"] == loaded.split()
