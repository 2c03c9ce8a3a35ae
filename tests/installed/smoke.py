"""What has to work with an extra alone: `python -m tests.installed.smoke EXTRA`, in the environment that it is about.

`base` is an installation without extras. A check ends with an AssertionError or whatever it met.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fakes.openai_server import OpenAIServer, answer

from cenote import CaveAgent, OpenAIServerModel, PythonRuntime, SkillDiscovery, Variable

COMMAND = [sys.executable, "-m", "cenote"]


def base() -> None:
    with TemporaryDirectory() as folder:
        _cells(Path(folder) / "history.db")
        _checkpoint(Path(folder) / "store")
        _skill(Path(folder))
    _agent()


def _cells(history: Path) -> None:
    with PythonRuntime(variables=[Variable("prices", [12.0, 30.0])], history=str(history)) as runtime:
        assert runtime.execute("total = sum(prices)").success
        assert runtime.execute("import os; os._exit(1)").state == "rolled_back"
        runtime.execute("prices.append(1.0)")
        runtime.rollback(1)
        assert [12.0, 30.0] == runtime.retrieve("prices")
        assert 42.0 == runtime.retrieve("total")
        steps = [step.code for step in runtime.state.steps]
        assert "total = sum(prices)" in steps, steps


def _checkpoint(store: Path) -> None:
    with PythonRuntime(store=str(store), name="kept") as runtime:
        runtime.execute("x = 41 + 1")
        runtime.checkpoint("here")
    with PythonRuntime.restore(str(store), "kept") as runtime:
        assert 42 == runtime.retrieve("x")


def _skill(folder: Path) -> None:
    (folder / "SKILL.md").write_text("---\nname: adding\ndescription: Adds.\n---\nAdd them.\n")
    assert "adding" == SkillDiscovery.from_file(folder / "SKILL.md").name


def _agent() -> None:
    said = [answer("```python\ngreeting = 'hello'.upper()\nprint(greeting)\n```"), answer("It says HELLO.")]
    with OpenAIServer(said) as server, PythonRuntime() as runtime:
        model = OpenAIServerModel("any", base_url=server.url, trust_env=False)
        response = asyncio.run(CaveAgent(model, runtime=runtime).run("Greet"))
        assert "success" == response.status.value, response
        assert "HELLO" == runtime.retrieve("greeting")
        assert response.token_usage.total > 0


CHECKS: dict[str, Callable[[], None]] = {"base": base}


def main(extras: list[str]) -> None:
    for extra in extras:
        CHECKS[extra]()


if __name__ == "__main__":
    main(sys.argv[1:])
