"""The features that must work with an extra alone: `python -m tests.house.installed.smoke EXTRA`, in its environment.

`base` is an installation without extras. A failing check raises an AssertionError or any other exception.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from tests.fakes.openai_server import OpenAIServer, answer
from tests.support.environments.wheels import write_wheel

from cenote import (
    CaveAgent,
    Environment,
    OpenAIServerModel,
    PythonRuntime,
    SandboxPolicy,
    SkillDiscovery,
    Variable,
)
from cenote.errors import CenoteError

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


def models() -> None:
    """LiteLLM against the same server, and its tokenizers."""
    from cenote import LiteLLMModel
    from cenote.tokens import count_tokens

    with OpenAIServer([answer("It is done.")]) as server, PythonRuntime() as runtime:
        model = LiteLLMModel("openai/any", "no-key", api_base=server.url)
        assert "It is done." == asyncio.run(CaveAgent(model, runtime=runtime).run("Go")).content
    assert 2 == count_tokens("hello world")


def platform() -> None:
    """A platform on Ray, with a cell and a durable runtime, also over HTTP."""
    from cenote import connect

    started = json.loads(_cenote("up", "--port", "0", "--http", "127.0.0.1:0", "--json"))
    try:
        token = Path(started["token_file"]).read_text().strip()
        with connect(started["address"], token).runtime("etl", durable=True) as runtime:
            assert runtime.execute("x = 6 * 7").success
            assert 42 == runtime.retrieve("x")
        assert "etl" in _cenote("runtime", "ls", "--address", started["address"], token=token)
        assert ["etl"] == [found["name"] for found in _asked(started["http"], token)]
    finally:
        _cenote("down")


def http() -> None:
    """A server with its own runtimes."""
    with _served() as (url, token):
        headers = {"Authorization": f"Bearer {token}"}
        httpx.put(f"{url}/v1/runtimes/etl", headers=headers, json={}).raise_for_status()
        done = httpx.post(f"{url}/v1/runtimes/etl/cells", headers=headers, json={"code": "6 * 7"})
        assert "42" == done.raise_for_status().json()["value"]


def e2b() -> None:
    """E2B's interface on that server, and the libraries with which its jails read charts."""
    with _served() as (url, token):
        made = httpx.post(f"{url}/sandboxes", headers={"X-API-Key": token}, json={"templateID": "base"})
        assert 201 == made.status_code, made.text
    with PythonRuntime() as runtime:
        assert runtime.execute("import e2b_charts").success


def mcp() -> None:
    """A cell through the protocol's own client."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def asked() -> None:
        started = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], "mcp"], env=dict(os.environ))
        async with Client(stdio_client(started)) as client:
            said = await client.call_tool("run", {"code": "6 * 7"})
            assert "42" in str(said.content), said

    asyncio.run(asked())


def jupyter() -> None:
    """A kernel as Jupyter starts it."""
    from jupyter_client.manager import start_new_kernel

    _cenote("jupyter", "install", "--sys-prefix")
    manager, client = start_new_kernel(kernel_name="cenote")
    try:
        shown = list[object]()
        client.execute_interactive("6 * 7", output_hook=shown.append, timeout=60)
        assert "'text/plain': '42'" in str(shown), shown
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def postgresql() -> None:
    """The driver is installed: only the server is missing."""
    error = _refused(lambda: PythonRuntime(history="postgresql://127.0.0.1:1/none").start())
    assert "refused" in str(error), error


def s3() -> None:
    """The driver is installed: only the store is missing."""
    away = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    os.environ.update(away, AWS_MAX_ATTEMPTS="1")
    error = _refused(lambda: PythonRuntime.restore("s3://bucket/path", "etl"))
    assert "127.0.0.1:1" in str(error), error


def _refused(call: Callable[[], object]) -> CenoteError:
    """The error that it ends with, which is not about a missing library."""
    try:
        call()
    except CenoteError as error:
        if isinstance(error, ImportError):
            raise
        return error
    raise AssertionError("it should have found no server")


def data() -> None:
    """A frame into a jail and back, and the demo."""
    import pandas

    with PythonRuntime(variables=[Variable("table", pandas.DataFrame({"a": [1, 2]}))]) as runtime:
        assert [2, 4] == (runtime.execute("twice = table * 2"), runtime.retrieve("twice"))[1]["a"].tolist()
    with TemporaryDirectory() as folder:
        _cenote("demo", folder=folder)


def _cenote(*words: str, folder: str | None = None, token: str = "") -> str:
    """The output of a command. Raises AssertionError with its errors."""
    own = {"CENOTE_TOKEN": token} if token else {}
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, cwd=folder, env=os.environ | own, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def _asked(url: str, token: str) -> list[dict[str, object]]:
    answer = httpx.get(f"{url}/v1/runtimes", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    runtimes: list[dict[str, object]] = answer.raise_for_status().json()
    return runtimes


@contextmanager
def _served() -> Iterator[tuple[str, str]]:
    """The address of `cenote serve` and its token."""
    token = "a-token-of-this-test"
    command = [*COMMAND, "serve", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"CENOTE_TOKEN": token}
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().removeprefix("listening on ").partition(";")[0], token
        finally:
            server.terminate()


def environments() -> None:
    with TemporaryDirectory() as folder:
        os.environ["CENOTE_ENVIRONMENTS"] = f"{folder}/environments"
        write_wheel(Path(folder), "greeting", "1.0", {"greeting.py": "WORD = 'hello'\n"})
        wanted = Environment(["greeting"], find_links=[folder], offline=True)
        with PythonRuntime(sandbox=SandboxPolicy(environment=wanted)) as runtime:
            assert runtime.execute("import greeting; word = greeting.WORD").success
            assert "hello" == runtime.retrieve("word")


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (base, models, platform, http, e2b, mcp, jupyter, postgresql, s3, data, environments)
}


def main(extras: list[str]) -> None:
    for extra in extras:
        CHECKS[extra]()


if __name__ == "__main__":
    main(sys.argv[1:])
