"""Tools that record their calls, so that styles can be checked to have made the same calls."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence

Tool = Callable[..., object]


class RecordedTools:
    """Wraps tools without changing name, signature or docstring.

    calls: the calls as text, in order, errors included.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.calls: list[str] = []
        self.tools: list[Tool] = [self._recorded(tool) for tool in tools]
        self.by_name = {tool.__name__: tool for tool in self.tools}

    def _recorded(self, tool: Tool) -> Tool:
        signature = inspect.signature(tool)

        @functools.wraps(tool)
        def recorded(*args: object, **kwargs: object) -> object:
            arguments = signature.bind(*args, **kwargs).arguments
            self.calls.append(f"{tool.__name__} {json.dumps(arguments, sort_keys=True)}")
            return tool(*args, **kwargs)

        return recorded
