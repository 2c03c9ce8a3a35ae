"""rlms: runtimes as the REPL of recursive language models (Zhang et al., 2025), under the name `cenote`.

import cenote.adapters.rlms                                             # adds the environment
RLM(..., environment="cenote", environment_kwargs={"timeout": 60})      # a runtime for each completion
RLM(..., environment="cenote", environment_kwargs={"runtime": runtime}) # one of yours for the root
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self

from cenote.adapters.agent_namespace import AgentNamespace, AnyRuntime, failure, printed
from cenote_security.errors import RuntimeLostError, UnknownNameError, UnsafeValueError
from cenote_security.extras import importing
from cenote_worker.execution.results import VariableInfo

with importing("the adapter for rlms", "rlms"):
    import rlm.core.rlm as core
    from rlm.core.comms_utils import LMRequest, send_lm_request, send_lm_request_batched
    from rlm.core.types import REPLResult, RLMChatCompletion
    from rlm.environments.base_env import (
        NonIsolatedEnv,
        extract_tool_value,
        validate_custom_tools,
    )

NAME: Final = "cenote"
"""Of the environment, for RLM."""

_ANSWER: Final[Mapping[str, Any]] = {"content": "", "ready": False}

_PLAIN: Final = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
    "tuple": tuple,
}
"""Types of variables whose names rlms lists for its model."""


def _show_vars() -> str:
    """The variables that there are, with their types."""
    import sys

    found = {
        name: type(value).__name__
        for name, value in sys._getframe(1).f_globals.items()
        if not name.startswith("_") and name not in hidden  # type: ignore[name-defined]  # noqa: F821
    }
    return (
        f"Available variables: {found}"
        if found
        else "There are no variables yet: ```repl``` blocks make them."
    )


class CenoteREPL(NonIsolatedEnv):
    """The REPL of one RLM: code runs in a runtime, queries of models and custom tools in this process.

    lm_handler_address to max_concurrent_subcalls: given by RLM. runtime: of the caller, who closes it, for the RLM at
    the root; it may be used again. Its children wait in cells of their parents, so each has a runtime of its own,
    with the policy of `runtime`. options: of PythonRuntime, for each runtime that is made here, which `cleanup` ends.
    timeout: seconds for one block, the queries in it included.
    """

    def __init__(
        self,
        lm_handler_address: tuple[str, int] | None = None,
        context_payload: Any = None,
        setup_code: str | None = None,
        persistent: bool = False,
        depth: int = 1,
        subcall_fn: Callable[[str, str | None], RLMChatCompletion] | None = None,
        custom_tools: dict[str, Any] | None = None,
        custom_sub_tools: dict[str, Any] | None = None,
        compaction: bool = False,
        max_concurrent_subcalls: int = 4,
        *,
        runtime: AnyRuntime | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(persistent=persistent, depth=depth, max_concurrent_subcalls=max_concurrent_subcalls)
        validate_custom_tools(custom_tools)
        self.lm_handler_address = lm_handler_address
        self.subcall_fn = subcall_fn
        self.custom_tools = custom_tools or {}
        self.custom_sub_tools = self.custom_tools if custom_sub_tools is None else custom_sub_tools
        self.compaction = compaction
        if runtime is not None and depth > 1:
            options, runtime = {"sandbox": runtime.core.policy, **options}, None
        self._namespace = AgentNamespace(runtime, timeout=timeout, **({} if runtime is not None else options))
        self._calls: list[RLMChatCompletion] = []
        self._functions: frozenset[str] = frozenset()
        self._compacted: list[Any] = []
        self._contexts = 0
        self._histories = 0
        self._ended = False
        self.setup()
        if context_payload is not None:
            self.load_context(context_payload)
        if setup_code:
            self.execute_code(setup_code)

    @property
    def runtime(self) -> Any:
        return self._namespace.runtime

    @property
    def locals(self) -> Mapping[str, Any]:
        """The variables; none after `cleanup`. A value is retrieved when it is looked at."""
        return {} if self._ended else _Variables(self.runtime)

    def setup(self) -> None:
        """The names that rlms promises to its model."""
        self._offer()
        values = {name: value for name, value in self._tools().items() if not callable(value)}
        self._namespace.put({**values, "answer": dict(_ANSWER)})
        if self.compaction:
            self._namespace.put({"history": self._compacted})

    def _offer(self) -> None:
        own = {
            "llm_query": self.llm_query,
            "llm_query_batched": self.llm_query_batched,
            "rlm_query": self.rlm_query,
            "rlm_query_batched": self.rlm_query_batched,
        }
        tools = {**own, **{name: tool for name, tool in self._tools().items() if callable(tool)}}
        self._namespace.offer(tools)
        self._functions = frozenset({*tools, "SHOW_VARS"})
        self._namespace.define(_show_vars, "SHOW_VARS", hidden=self._functions | {"answer"})

    def _tools(self) -> dict[str, Any]:
        return {name: extract_tool_value(entry) for name, entry in self.custom_tools.items()}

    def execute_code(self, code: str) -> REPLResult:
        """Runs one block. An error of its code is in the result. Raises CenoteError where the runtime fails."""
        began, self._calls = time.perf_counter(), []
        result = self._namespace.run(code)
        if result.state == "lost":  # with the context that the task is about
            raise RuntimeLostError(f"its state is lost: {result.error}")
        output, error = printed(result, code), failure(result, code)
        final, wrong = self._final()
        self._restore(code)
        return REPLResult(
            stdout=output,
            stderr="\n".join(part for part in (error, wrong) if part),
            locals={info.name: _stand_in(info) for info in self.runtime.describe()},
            execution_time=time.perf_counter() - began,
            rlm_calls=list(self._calls),
            final_answer=final,
        )

    def _final(self) -> tuple[str | None, str]:
        """The answer, if there is one, and what the model should know of one that cannot be read."""
        try:
            answer = self.runtime.retrieve("answer")
        except UnknownNameError:
            answer = None
        except UnsafeValueError as error:
            return None, (
                f"`answer` holds a value of class {error.class_name}, which does not leave the sandbox: make "
                f"answer['content'] a text"
            )
        if not isinstance(answer, dict):
            self._namespace.put({"answer": dict(_ANSWER)})
            return None, ""
        if not answer.get("ready"):
            return None, ""
        content = answer.get("content", "")
        self._namespace.put({"answer": {"content": content, "ready": False}})  # for the next completion
        return str(content), ""

    def _restore(self, code: str) -> None:
        """What a block has put in the place of a promised name goes with the block."""
        rebound = _bound(code)
        if rebound & self._functions:
            self._offer()
        if "context" in rebound and self._contexts:
            self._alias("context")
        if "history" in rebound:
            if self.compaction:
                self._namespace.put({"history": self._compacted})
            elif self._histories:
                self._alias("history")

    # -- contexts and histories --

    def load_context(self, context_payload: Any) -> None:
        self.add_context(context_payload, 0)

    def add_context(self, context_payload: Any, context_index: int | None = None) -> int:
        """Under `context_N`, the first one as `context`, too. Returns N."""
        index = self._contexts if context_index is None else context_index
        self._add("context", index, context_payload)
        self._contexts = max(self._contexts, index + 1)
        return index

    def add_history(self, message_history: list[dict[str, Any]], history_index: int | None = None) -> int:
        """The same for the messages of a completion."""
        index = self._histories if history_index is None else history_index
        self._add("history", index, message_history)
        self._histories = max(self._histories, index + 1)
        return index

    def get_context_count(self) -> int:
        return self._contexts

    def get_history_count(self) -> int:
        return self._histories

    def append_compaction_entry(self, entry: Any) -> None:
        if self.compaction:
            self._compacted.append(copy.deepcopy(entry))
            self._namespace.put({"history": self._compacted})

    def update_handler_address(self, address: tuple[str, int]) -> None:
        self.lm_handler_address = address

    def _add(self, kind: str, index: int, value: Any) -> None:
        self._namespace.put({f"{kind}_{index}": value})
        if index == 0:
            self._alias(kind)

    def _alias(self, kind: str) -> None:
        self.runtime.execute(f"{kind} = {kind}_0", cause="the adapter names it")

    # -- queries, called from code; what fails is the text that the code gets, as rlms promises it --

    def llm_query(self, prompt: str, model: str | None = None) -> str:
        """One answer of a model, without a REPL."""
        if self.lm_handler_address is None:
            return "Error: No LM handler configured"
        calls, request = self._calls, LMRequest(prompt=prompt, model=model, depth=self.depth)
        return _text(send_lm_request(self.lm_handler_address, request), calls)

    def llm_query_batched(self, prompts: Sequence[str], model: str | None = None) -> list[str]:
        """Answers of a model to several prompts at once, in their order."""
        prompts, calls = list(prompts), self._calls
        if self.lm_handler_address is None:
            return ["Error: No LM handler configured"] * len(prompts)
        answers = send_lm_request_batched(self.lm_handler_address, prompts, model=model, depth=self.depth)
        return [_text(answer, calls) for answer in answers]

    def rlm_query(self, prompt: str, model: str | None = None) -> str:
        """The answer of a child RLM with a REPL of its own; of a model alone where no deeper child may be."""
        if self.subcall_fn is None:
            return self.llm_query(prompt, model)
        return _told(self._child(prompt, model), self._calls)

    def rlm_query_batched(self, prompts: Sequence[str], model: str | None = None) -> list[str]:
        """Answers of child RLMs to several prompts, some at once, in their order."""
        if self.subcall_fn is None:
            return self.llm_query_batched(prompts, model)
        calls = self._calls
        with ThreadPoolExecutor(max(1, self.max_concurrent_subcalls)) as pool:
            ended = list(pool.map(lambda prompt: self._child(prompt, model), prompts))
        return [_told(each, calls) for each in ended]

    def _child(self, prompt: str, model: str | None) -> RLMChatCompletion | Exception:
        assert self.subcall_fn is not None
        try:
            return self.subcall_fn(prompt, model)
        except Exception as error:  # noqa: BLE001 (a child may fail in any way, which its parent's code reads)
            return error

    # -- life --

    def cleanup(self) -> None:
        """Ends the runtime if it was made here; removes the tools from one of the caller's."""
        self._ended = True
        self._namespace.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()


class _Variables(Mapping[str, Any]):
    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def __getitem__(self, name: str) -> Any:
        try:
            return self._runtime.retrieve(name)
        except UnknownNameError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter([info.name for info in self._runtime.describe()])

    def __len__(self) -> int:
        return len(self._runtime.describe())


def _stand_in(info: VariableInfo) -> Any:
    """For a result, which lists the names of variables with plain values and shows no value."""
    return f"<{info.type}>" if info.type in _PLAIN else info


def _text(answer: Any, calls: list[RLMChatCompletion]) -> str:
    if not answer.success:
        return f"Error: {answer.error}"
    return _told(answer.chat_completion, calls)


def _told(ended: RLMChatCompletion | Exception, calls: list[RLMChatCompletion]) -> str:
    """calls: of the block that asked, even where the answer comes after its end."""
    if isinstance(ended, Exception):
        return f"Error: RLM query failed - {ended}"
    calls.append(ended)
    return str(ended.response)


def _bound(code: str) -> set[str]:
    """Names that code may bind or delete, as far as its text says."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return set()
    return set(_names(ast.walk(tree)))


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=alias):
                yield alias or name.partition(".")[0]


_SPAWNING: Final[ContextVar[Any]] = ContextVar("the RLM that makes its environment", default=None)


def _register() -> None:
    """Adds the environment to rlms, which has a fixed list of them and no other way to add one.

    Where this module is not loaded, RLM refuses the name; it never runs the code elsewhere.
    """
    known, spawn = core.get_environment, core.RLM._spawn_completion_context
    check = core.RLM._validate_persistent_environment_support

    def get_environment(environment: str, environment_kwargs: dict[str, Any]) -> Any:
        if environment != NAME:
            return known(environment, environment_kwargs)
        asking = _SPAWNING.get()
        given = {"compaction": asking.compaction} if asking is not None else {}
        if asking is not None and asking.max_depth > 1:
            given["subcall_fn"] = asking._subcall
        return CenoteREPL(**{**given, **environment_kwargs})

    @contextmanager
    def _spawn_completion_context(self: Any, prompt: Any) -> Iterator[Any]:
        token = _SPAWNING.set(self)
        try:
            with spawn(self, prompt) as made:
                yield made
        finally:
            _SPAWNING.reset(token)

    def _validate_persistent_environment_support(self: Any) -> None:
        if self.environment_type != NAME:
            check(self)

    core.get_environment = get_environment
    core.RLM._spawn_completion_context = _spawn_completion_context
    core.RLM._validate_persistent_environment_support = _validate_persistent_environment_support


_register()
