"""FastMCP: jails as the sandbox of its code mode.

from cenote.adapters.fastmcp import CenoteSandboxProvider
server = FastMCP("tools", transforms=[CodeMode(sandbox_provider=CenoteSandboxProvider())])
"""

from __future__ import annotations

import ast
import asyncio
import contextvars
from collections.abc import Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from cenote.adapters.agent_namespace import AgentNamespace, AnyRuntime, failure, printed
from cenote_security.errors import CenoteError
from cenote_security.extras import importing

with importing("the adapter for FastMCP", "fastmcp"):
    from fastmcp.exceptions import ToolError

_ENDING: Final = "_returned"


class CenoteSandboxProvider:
    """A SandboxProvider of FastMCP's code mode.

    Each block of code has a jail of its own, so clients of one server have nothing in common. With `runtime`, all
    blocks run in that namespace, one after the other, and variables stay: for a server with one client.

    runtime: of the caller, who closes it. timeout: seconds for one block, the calls of tools in it included. options:
    of PythonRuntime, for the jails that are made here.
    """

    def __init__(
        self, runtime: AnyRuntime | None = None, *, timeout: float | None = 30.0, **options: Any
    ) -> None:
        self._timeout = timeout
        self._options = options
        self._kept = (
            None if runtime is None else AgentNamespace(runtime, ending=_ENDING, timeout=timeout, **options)
        )
        self._turn = asyncio.Lock()

    async def run(
        self,
        code: str,
        *,
        inputs: dict[str, Any] | None = None,
        external_functions: dict[str, Callable[..., Any]] | None = None,
    ) -> Any:
        """What the code returns, or the value of its last expression: plain data, arrays, frames. What it printed, if
        that is None.

        Raises ToolError, whose text is for the model, for code that fails.
        """
        here = _InThisTask()
        functions = {name: here.calling(function) for name, function in (external_functions or {}).items()}
        try:
            async with self._namespace() as namespace:
                working = asyncio.to_thread(_run, namespace, code, inputs or {}, functions)
                return await _or_interrupted(working, namespace)
        except CenoteError as error:
            raise ToolError(str(error).replace(f"{_ENDING}()", "`return`")) from error

    @asynccontextmanager
    async def _namespace(self) -> Any:
        if self._kept is not None:
            async with self._turn:  # what a block may call is that of its request
                yield self._kept
            return
        namespace = AgentNamespace(ending=_ENDING, timeout=self._timeout, **self._options)
        try:
            yield namespace
        finally:
            await asyncio.to_thread(namespace.close)


async def _or_interrupted(working: Any, namespace: AgentNamespace) -> Any:
    """A request that is cancelled ends its cell, and waits for that: the next one has the namespace."""
    task = asyncio.ensure_future(working)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        namespace.runtime.interrupt()
        await asyncio.wait([task])
        raise


def _run(
    namespace: AgentNamespace,
    code: str,
    inputs: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
) -> Any:
    namespace.offer(functions)
    namespace.put(inputs)
    code = with_returns(code)
    result = namespace.run(code)
    output = printed(result, code)
    if not result.success:
        raise ToolError("\n".join(part for part in (output, failure(result, code)) if part))
    ended = namespace.ended(result)
    value = ended.args[0] if ended is not None and ended.args else None
    return value if value is not None else output or None


class _InThisTask:
    """Functions that code calls, run on the loop of the request, with what FastMCP knows about the request."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            work = self._called(function, args, kwargs)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

        return call

    async def _called(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        async def call() -> Any:
            given = function(*args, **kwargs)
            return await given if asyncio.iscoroutine(given) else given

        return await self._loop.create_task(call(), context=self._context.copy())


def with_returns(code: str) -> str:
    """The code with calls of the ending in place of `return` outside of functions, which FastMCP's models write, and
    around a last expression. Lines stay what they are. Code that does not parse stays too, for its error.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return code
    changed = code.encode()
    lines = [0]
    for line in changed.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for node in sorted(_ending_nodes(tree), key=lambda node: (node.lineno, node.col_offset), reverse=True):
        begin = lines[node.lineno - 1] + node.col_offset
        end = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        text = changed[begin:end]
        if isinstance(node, ast.Return):
            text = text.removeprefix(b"return").strip()
        given = b"(" + text + b")" if text else b""  # of a tuple, one value
        changed = changed[:begin] + _ENDING.encode() + b"(" + given + b")" + changed[end:]
    return changed.decode()


def _ending_nodes(tree: ast.Module) -> Iterator[ast.stmt]:
    waiting: list[ast.stmt] = list(tree.body)
    if waiting and isinstance(waiting[-1], ast.Expr):
        yield waiting.pop()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += _inner(node)


def _inner(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements directly inside of another one: its blocks, handlers and cases."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.excepthandler | ast.match_case):
            yield from _inner(child)
