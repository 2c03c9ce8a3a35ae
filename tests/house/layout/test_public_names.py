"""The public API is a list: adding or removing a name requires a change of this file."""

from __future__ import annotations

import importlib
from importlib.metadata import version

import pytest

PUBLIC = {
    "cenote": "Allow Budget CaveAgent CenoteError Environment Function PythonRuntime SandboxPolicy "
    "Skill Team Type Variable",
    "cenote.errors": "CenoteError NameExistsError OutcomeUnknownError RuntimeLostError UnavailableError "
    "UnsafeValueError UsageError",
    "cenote.harness": "ExecutionState Step",
    "cenote.jobs": "BadTasksError Job Jobs JobStatus ModelSpec TaskError TaskLog TaskResult",
    "cenote.models": "LiteLLMModel Model OpenAIServerModel ReplayModel ScriptedModel",
    "cenote.agent": "BranchesFailedError BranchOutcome CaveAgent",
    "cenote.rl": "Environment FinalState Score Transition",
    "cenote.runtime": "AsyncPythonRuntime ExecutionResult FinalState Function IncompleteForkError Merge "
    "MergeConflictError PythonRuntime Type Variable",
    "cenote.security": "Allow AttributeRule FunctionRule ImportRule RegexRule SandboxPolicy SecurityChecker "
    "SecurityError SecurityRule SecurityViolation printable",
    "cenote.skills": "Skill SkillDiscovery",
    "cenote.team": "Budget BudgetExceededError Member Outcome Price Step Team TeamEvent TeamState fan_out first "
    "gather race",
}


@pytest.mark.parametrize(("package", "promised"), PUBLIC.items())
def test_promised_names_are_exported(package: str, promised: str) -> None:
    """Every name that the documentation promises is in `__all__`."""
    assert set() == set(promised.split()) - set(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", PUBLIC)
def test_exported_names_exist_and_are_sorted(package: str) -> None:
    """`__all__` is sorted without regard to case, has no name twice, and each of its names is there."""
    module = importlib.import_module(package)
    assert sorted(set(module.__all__), key=str.casefold) == list(module.__all__)
    assert [] == [name for name in module.__all__ if not hasattr(module, name)]


def test_the_version_is_the_installed_one() -> None:
    """The version in the code and the one in the package's metadata are changed together."""
    assert version("cenote") == importlib.import_module("cenote").__version__
