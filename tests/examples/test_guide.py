"""The Python of the README and of docs/ runs as it is written, with what a reader would have at hand there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

import cenote.models
from cenote.models import Message, Model, ModelChunk, ModelTurn, ScriptedModel, estimate_usage

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Turns(Model):
    """Answers by how far the conversation has come, so that one object can serve several agents."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[ModelChunk, None]:
        text = self._lines[sum(each.role == "assistant" for each in messages) % len(self._lines)]
        yield text
        yield ModelTurn(text, "stop", estimate_usage(messages, text))


def code(text: str) -> str:
    return f"```python\n{text}\n```"


ELSEWHERE = {
    ("docs/data.md", 0): "reads from S3; tests/data does the same on a cluster that it has",
    ("docs/data.md", 1): "the same",
    ("docs/jobs.md", 0): "asks a platform, as tests/jobs do",
    ("docs/platform.md", 0): "asks a platform, as tests/remote do",
    ("docs/runtime.md", 0): "asks pypi.org; tests/egress have servers of their own",
}

RUNTIME = "from cenote import PythonRuntime\nruntime = PythonRuntime()\n"

PATCHED = f"""{RUNTIME}
runtime.execute("def clean(rows): return rows[1:]")
runtime.execute("kept = clean([1, 2, 3])")
state, source = runtime.state, "def clean(rows): return rows"
"""

AT_HAND = {
    ("README.md", 2): f"""{RUNTIME}
from cenote import CaveAgent
earlier, sent = [{{"role": "user", "content": "Hello."}}], []
async def ask_my_server(messages):
    return f"You said {{messages[-1]['content']}}"
class websocket:
    async def send_json(message):
        sent.append(message)
""",
    ("README.md", 3): """
import pandas as pd
df = pd.DataFrame({"amount": [1, 2]})
def send_invoice(number: int) -> None: ...
""",
    ("README.md", 4): "from cenote import PythonRuntime",
    ("README.md", 5): f"""{RUNTIME}
from cenote import CaveAgent
agent = CaveAgent(Turns(code("accuracy = 0.9"), "Done."), runtime=runtime)
""",
    ("README.md", 6): f"""{RUNTIME}
model = Turns(code("tidy = sorted(globals().get('raw', []))\\ntotals = sum(tidy)"), "Done.")
runtime.execute("raw = [3, 1]")
reference = runtime.share("raw")
references = [reference, reference]
""",
    ("docs/history.md", 1): f"{PATCHED}\nmodel = Turns('Done.')",
    ("docs/history.md", 2): "from cenote import PythonRuntime\nfrom cenote.harness import Patch",
    ("docs/history.md", 3): f"""{RUNTIME}
from cenote.harness import Patch
state, source = runtime.state, "price = 3"
runtime.execute("with open('shop.py', 'w') as file: file.write('price = 2')")
runtime.execute("with open('test_shop.py', 'w') as file: file.write('def test_price(): import shop')")
runtime.execute("import shop\\nwith open('report.md', 'w') as file: file.write(str(shop.price))")
""",
    ("docs/state.md", 1): f"""{RUNTIME}
from cenote import CaveAgent
agent = CaveAgent(Turns(code("accuracy = 0.9"), "Done."), runtime=runtime)
""",
    ("docs/runtime.md", 1): "from cenote import PythonRuntime",
}
"""What the text before a block, or whoever reads it, has made. Blocks that are not here need nothing."""

SHOWN = {
    ("README.md", 0): ["rolled_back", "(1, 2)", "62.5"],
    ("README.md", 1): ["Hello, world!"],
}

BLOCKS = [
    (str(page.relative_to(ROOT)), number, block)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, block in enumerate(FENCE.findall(page.read_text()))
]


def run(text: str, name: str, names: dict[str, object]) -> None:
    compiled = compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(compiled, names))
    else:
        eval(compiled, names)


@pytest.mark.parametrize(
    ("page", "number", "block"),
    [each for each in BLOCKS if each[:2] not in ELSEWHERE],
    ids=lambda each: str(each) if len(str(each)) < 20 else "",
)
def test_a_block_runs_as_it_is_written(
    page: str,
    number: int,
    block: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In an empty folder. Models that would be asked over the network answer from a script."""
    monkeypatch.chdir(tmp_path)
    reversing = [code("greeting = reverse(secret)"), "Done."]
    monkeypatch.setattr(cenote.models, "LiteLLMModel", lambda **_: ScriptedModel(reversing), raising=False)
    names: dict[str, object] = {"Turns": Turns, "code": code, "__name__": "guide"}
    run(textwrap.dedent(AT_HAND.get((page, number), "")), "at hand", names)
    run(block, page, names)
    said = capsys.readouterr().out.splitlines()
    assert [] == [line for line in SHOWN.get((page, number), []) if line not in said]


def test_no_block_is_forgotten() -> None:
    """What is said of blocks is said of such as there are."""
    there = {each[:2] for each in BLOCKS}
    assert set() == {*ELSEWHERE, *AT_HAND, *SHOWN} - there
